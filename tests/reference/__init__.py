"""Slow plain twins of compiled kernels: no numba, no lanes."""
