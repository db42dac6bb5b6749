"""Allocation (OGASched): how much of each resource every job gets."""
