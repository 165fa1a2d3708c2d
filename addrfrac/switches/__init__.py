"""Free switches: rewrites on public library calls, one a module, and the table of all of them."""
