"""Every built-in policy on a fixed list of scenarios, and one's own beside them."""
