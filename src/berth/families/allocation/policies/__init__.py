"""Policies of the allocation family."""
