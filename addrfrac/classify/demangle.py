"""Mangled C++ names in, the qualified function name and the identifiers of its template arguments out.

Not a demangler: just as much of the Itanium C++ ABI (section 5.1) as naming a kernel's owner takes. Types,
expressions and substitutions inside the template arguments are reduced to the identifiers that occur in them, so
that names cut short by a log still give what is left of them.
"""

from __future__ import annotations

import re

_IDENTIFIER = re.compile(r"\d+")
_FLOAT = re.compile(r"DF\d+[_bx]?")  # hipcc writes DF16b for bfloat16
_LITERAL = re.compile(r"L[a-z]n?(\d+)E")
_ANONYMOUS = "{anon}"
_OPERATORS = {"cl": "operator()", "pl": "operator+", "mi": "operator-", "ml": "operator*", "dv": "operator/"}
_STANDARD = {"St": "std", "Sa": "std::allocator", "Ss": "std::string", "Sb": "std::basic_string"}


def demangle(name: str) -> str:
    """`ns::kernel<Arg, Arg>` for an Itanium-mangled name; the name itself where it is not one."""
    if not name.startswith("_Z"):
        return name
    components, position = _qualified(name, 2)
    if not components:
        return name
    arguments = _identifiers(name, position)
    qualified = "::".join(components)
    return f"{qualified}<{', '.join(arguments)}>" if arguments else qualified


def _qualified(name: str, position: int) -> tuple[list[str], int]:
    """The components up to the first template argument list of the innermost name, and where they end."""
    components: list[str] = []
    nested = name.startswith("N", position)
    if nested:
        position += 1
        while name[position : position + 1] in {"K", "V", "r", "R", "O"}:  # const, volatile, ref-qualifiers
            position += 1
    while position < len(name):
        two = name[position : position + 2]
        if two in _STANDARD:
            components.append(_STANDARD[two])
            position += 2
        elif name[position] == "L":  # internal linkage
            position += 1
        elif name[position] == "I":
            after = _end_of_arguments(name, position)
            if nested and name[after : after + 1].isdigit():  # a member of a class template: its own name counts
                position = after
                continue
            break
        elif match := _IDENTIFIER.match(name, position):
            text, position = _source_name(name, match)
            components.append(_ANONYMOUS if text.startswith("_GLOBAL__N") else text)
            if not nested:
                if name[position : position + 1] != "I":
                    return components, len(name)  # what follows is the type of its arguments
                break
        elif two in _OPERATORS:
            components.append(_OPERATORS[two])
            position += 2
        else:
            break
    return components, position


def _source_name(name: str, match: re.Match[str]) -> tuple[str, int]:
    start = match.end()
    end = min(len(name), start + int(match.group()))
    return name[start:end], end


def _end_of_arguments(name: str, position: int) -> int:
    """Just past the E that closes the template argument list opened at `position`; the end where it was cut."""
    depth = 0
    while position < len(name):
        character = name[position]
        if match := _FLOAT.match(name, position):
            position = match.end()
            continue
        if match := _IDENTIFIER.match(name, position):
            _, position = _source_name(name, match)
            continue
        if character == "L":  # a literal: <type> <value> E
            end = name.find("E", position)
            if name.startswith("L_Z", position) or end < 0:
                position += 1
                depth += 1
                continue
            inner = name[position + 1 : position + 2]
            if inner.isdigit() or inner == "N":
                position += 1
                depth += 1
                continue
            position = end + 1
            continue
        if character == "S":
            position = _end_of_substitution(name, position)
            continue
        if character in "INJXF":
            depth += 1
        elif character == "E":
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    return len(name)


def _end_of_substitution(name: str, position: int) -> int:
    if name[position : position + 2] in _STANDARD:
        return position + 2
    end = name.find("_", position)
    return end + 1 if 0 <= end <= position + 4 else position + 1


def _identifiers(name: str, position: int) -> list[str]:
    """Identifiers in template arguments, in order; nested names are joined by `::`."""
    if name[position : position + 1] != "I":
        return []
    end = _end_of_arguments(name, position)
    found: list[str] = []
    joined = False
    while position < end:
        if match := _FLOAT.match(name, position):
            joined, position = False, match.end()
            continue
        if match := _IDENTIFIER.match(name, position):
            text, position = _source_name(name, match)
            text = _ANONYMOUS if text.startswith("_GLOBAL__N") else text
            if joined:
                found[-1] = f"{found[-1]}::{text}"
            else:
                found.append(text)
            joined = True
            continue
        joined = False
        if literal := _LITERAL.match(name, position):
            found.append(literal.group(1))
            position = literal.end()
        elif name[position] == "S":
            position = _end_of_substitution(name, position)
        else:
            position += 1
    return found
