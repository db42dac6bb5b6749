"""Workloads fitted to traces, and jobs generated from them."""
