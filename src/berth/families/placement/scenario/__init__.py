"""Scenario files of the placement family."""
