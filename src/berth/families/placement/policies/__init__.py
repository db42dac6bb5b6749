"""Policies of the placement family, one file each."""
