"""The contract of an engine, and what is needed to check it."""
