"""Policies of the selection family."""
