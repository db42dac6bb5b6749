"""Contract of an engine, and the tools to check it."""
