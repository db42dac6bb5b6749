"""What the scheduler knows, a module for each family."""
