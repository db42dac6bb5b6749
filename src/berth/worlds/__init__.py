"""What the scheduler does not know, a module for each family. Policies never import this."""
