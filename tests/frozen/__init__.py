"""Frozen results: what berth computed before its two halves were united, as hashes that every change is held against.

`python -m tests.frozen --check` computes all of them again; see the README here.
"""
