"""Other people's exceptions in a line."""

from __future__ import annotations

from addrfrac.errors import brief

OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 786.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 420.31 MiB "
    "is free. Process 5883 has 27.59 GiB memory in use. See documentation for Memory Management"
)


def test_what_torch_says_of_memory_is_what_was_asked_for_and_what_was_free():
    assert brief(OUT_OF_MEMORY) == "out of memory, 786.00 MiB asked for and 420.31 MiB free"
    assert brief(f"Amdahl only: capture failed: {OUT_OF_MEMORY}").startswith("Amdahl only: capture failed: out of mem")


def test_of_other_exceptions_the_first_line_is_left():
    assert brief("\n no such layer\nsecond line") == "no such layer"
    assert brief("") == ""
