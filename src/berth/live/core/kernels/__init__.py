"""Kernels of the live scheduler."""
