"""Policies of the placement family."""
