"""Scenario files of the selection family."""
