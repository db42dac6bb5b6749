"""Kernels of the placement family."""
