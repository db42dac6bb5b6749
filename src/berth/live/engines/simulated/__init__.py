"""The simulated cluster as an engine."""
