"""Tuned solutions, one file a problem, by Claude (Anthropic).

Written after the first attempts' verdicts were read. Each takes inputs in any layout (copied where a kernel needs them
contiguous), computes in fp32, and in TF32 where torch allows that for products.
"""
