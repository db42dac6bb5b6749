"""Policies that place tasks: one file each."""
