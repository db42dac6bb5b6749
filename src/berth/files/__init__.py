"""Files that people write: YAML with line numbers, quantities, and what is wrong with them in words."""
