"""Run comparisons and sweeps, and keep what comes of them."""
