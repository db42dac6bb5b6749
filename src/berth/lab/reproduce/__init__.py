"""Reproduce the papers' figures and tables, and judge their claims."""
