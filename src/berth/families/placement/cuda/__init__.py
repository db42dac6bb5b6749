"""Simulated runs of the placement family on a GPU, for training: a warp plays a whole run.

`run.cuh` and `learned.cu` are compiled at run time for the sizes of a problem and of its networks.
"""
