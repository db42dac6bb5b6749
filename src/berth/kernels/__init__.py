"""Compiled functions on plain arrays. They import nothing from the rest of berth.

Each has a plain Python twin or an independent reference in the tests. Only kernels use the papers' symbols:
l port, r server, k resource, y allocation, a request cap, c capacity, f utility, β overhead, τ the
multiplier of a capacity constraint.
"""
