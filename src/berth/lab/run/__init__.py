"""Run comparisons and sweeps, and store their results."""
