"""Real clusters on this machine, for trying and for tests: every daemon is there, on loopback addresses.

Each kind has `start`, `stop` (exactly what it started), `daemons` (their processes by name) and `how_to_use` (lines for a
person).
"""
