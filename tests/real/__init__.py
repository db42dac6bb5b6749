"""Tests on real clusters: each folder runs in one process, on one cluster that is cleaned between its tests."""
