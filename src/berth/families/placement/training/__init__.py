"""Offline training: policies whose weights come from thousands of simulated runs."""
