"""What the scheduler does not know, a module for each family, and what they share. Policies never import this."""
