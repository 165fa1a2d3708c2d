"""Solutions to the suite: `first` as written before any timing, `mended` after reading what the verifier said, `tuned`
to be fast."""
