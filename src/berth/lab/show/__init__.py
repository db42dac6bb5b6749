"""Tables, pictures and pages of results."""
