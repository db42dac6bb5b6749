"""Traces of real clusters: one loader per public format, one `Trace` type, and generators fitted to traces."""
