"""What a source's syntax tree suggests; hints for a reader, which decide nothing."""

from __future__ import annotations

import ast

from addrfrac.verification.records import Hint

_CALLS = {
    "exec": "runs text as code",
    "eval": "runs text as code",
    "compile": "compiles text",
    "__import__": "imports by name",
    "setattr": "sets attributes by name",
    "manual_seed": "sets the seed",
    "data_ptr": "takes an address",
    "system": "runs a command",
    "Popen": "runs a command",
    "fork": "forks",
    "Thread": "starts a thread",
    "Stream": "uses a stream of its own",
    "CUDAGraph": "captures a graph",
    "load_inline": "builds native code",
    "as_strided": "views memory by stride",
    "empty_like": "",
    "settrace": "watches the interpreter",
    "get_objects": "walks all objects",
    "_getframe": "walks the stack",
    "stack": "",
}
_MODULES = {
    "inspect": "reads the stack",
    "ctypes": "reaches into memory",
    "gc": "walks all objects",
    "socket": "opens the network",
    "subprocess": "runs commands",
    "multiprocessing": "starts processes",
    "threading": "starts threads",
    "urllib": "opens the network",
    "pickle": "loads objects",
    "base64": "carries encoded data",
}


def screen(text: str) -> list[Hint]:
    """Hints in order of lines; a source that is no Python gives one."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return [Hint(line=error.lineno or 0, what="is not Python", text=str(error.msg))]
    lines = text.splitlines()
    found: list[Hint] = []

    def hint(node: ast.AST, what: str) -> None:
        line = getattr(node, "lineno", 0)
        found.append(Hint(line=line, what=what, text=lines[line - 1].strip()[:100] if 0 < line <= len(lines) else ""))

    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                root = name.partition(".")[0]
                if root in _MODULES:
                    hint(node, _MODULES[root])
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if _CALLS.get(name):
                hint(node, _CALLS[name])
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and _rooted_in_torch(target):
                    hint(node, "assigns into torch")
        elif isinstance(node, ast.ExceptHandler) and _broad(node):
            hint(node, "catches everything")
        elif isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "Model" for base in node.bases):
            hint(node, "inherits the reference")
    return sorted(found, key=lambda h: h.line)


def imported_packages(text: str) -> frozenset[str]:
    """Roots of the packages that a source imports anywhere; none where it is no Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return frozenset(found)


def _rooted_in_torch(node: ast.Attribute) -> bool:
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in ("torch", "F", "time", "triton")


def _broad(node: ast.ExceptHandler) -> bool:
    return node.type is None or getattr(node.type, "id", "") in ("Exception", "BaseException")
