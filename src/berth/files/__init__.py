"""User input: YAML with line numbers, quantities, and error messages."""
