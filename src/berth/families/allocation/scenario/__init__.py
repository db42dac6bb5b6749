"""Scenario files of the allocation family."""
