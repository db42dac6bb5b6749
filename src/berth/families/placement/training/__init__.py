"""Learning before the run: policies whose weights come from thousands of simulated runs."""
