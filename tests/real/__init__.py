"""Tests on real clusters: each folder has one cluster, started once in a run and cleaned between its tests."""
