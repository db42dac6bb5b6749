"""The papers' figures and tables as experiments, and whether their claims hold."""
