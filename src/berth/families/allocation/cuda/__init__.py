"""The allocation family on a GPU: CUDA kernels, and the runs that use them.

`common.cuh` and `slot.cu` are compiled at run time for the precision and the sizes of a problem. Everything here speaks
to the GPU through `Device`, so that tests run the same kernels on a CPU.
"""
