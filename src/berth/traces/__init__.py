"""Workloads that really happened: one loader a public format, one `Trace` type, and generators fitted to them."""
