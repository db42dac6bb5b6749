"""How the tests themselves are run: second tries on real clusters, the watchdog, and what a run leaves behind."""
