"""Placement (DRL-Greedy, batch): which server for each task of a batch, and when."""
