"""Kernels of the selection family and its solvers."""
