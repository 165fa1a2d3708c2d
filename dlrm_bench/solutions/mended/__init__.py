"""The first attempts behind inputs made contiguous, one file a problem, by Claude (Anthropic).

What the verifier refused most of them for: ids, offsets or lengths that lie in every second place of their memory. No
timing was seen before they were kept; on inputs as the suite gives them they do what the first attempts do.
"""
