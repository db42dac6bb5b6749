"""Compiled functions on plain arrays. They import nothing else of berth.

Each has a slow plain twin or an independent referee among the tests. Paper symbols are used here and only here:
l port, r server, k resource, y allocation, a request cap, c capacity, f utility, β overhead, τ the
multiplier of a capacity constraint.
"""
