"""Kernels of the allocation family."""
