"""First attempts, one file a problem, by Claude (Anthropic).

Written from the problem's text, proven right under Triton's interpreter on a CPU, and not timed before they were kept.
They stay as they are; tuned ones live in `addrfrac.kernels`.
"""
