"""Solutions to the suite: `first` holds first attempts as written before any timing."""
