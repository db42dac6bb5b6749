"""A device that runs berth's CUDA kernels on a CPU: slow, and the same source.

g++ compiles the kernels with a few definitions in place of CUDA's. The threads of a block are coroutines that change
places at __syncthreads; blocks run one after the other. The order of the threads is reversed after every change, so
that a missing __syncthreads shows.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PRELUDE = r"""
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>
using std::sqrt; using std::log; using std::log1p; using std::exp; using std::signbit; using std::fabs;
#define __global__
#define __device__
#define __shared__
#define __launch_bounds__(...)
struct Index { int x; };
static Index threadIdx, blockIdx, blockDim, gridDim;
static ucontext_t scheduler;
static std::vector<ucontext_t> threads;
static std::vector<char> over;
static void (*body)();
static void __syncthreads() {
  int self = threadIdx.x;
  swapcontext(&threads[self], &scheduler);
  threadIdx.x = self;
}
template <class T> static T atomicAdd(T* place, T amount) { T old = *place; *place += amount; return old; }
static long long __double2ll_rn(double v) { return llrint(v); }
static long long __float2ll_rn(float v) { return llrintf(v); }
static int __float2int_rn(float v) { return (int)lrintf(v); }
static void trampoline() {
  int self = threadIdx.x;
  body();
  over[self] = 1;
  threadIdx.x = self;
  swapcontext(&threads[self], &scheduler);
}
static void run_blocks(int blocks, int size, void (*work)(), char* shared, long bytes) {
  const long stack = 256 * 1024;
  char* stacks = (char*)malloc(stack * size);
  body = work;
  gridDim.x = blocks, blockDim.x = size;
  for (int block = 0; block < blocks; block++) {
    memset(shared, 0xAB, bytes);  // shared memory holds anything at the start
    blockIdx.x = block;
    threads.assign(size, ucontext_t());
    over.assign(size, 0);
    for (int t = 0; t < size; t++) {
      getcontext(&threads[t]);
      threads[t].uc_stack.ss_sp = stacks + stack * t;
      threads[t].uc_stack.ss_size = stack;
      makecontext(&threads[t], trampoline, 0);
    }
    for (int left = size, change = 0; left > 0; change ^= 1) {
      left = 0;
      for (int n = 0; n < size; n++) {
        int t = change ? size - 1 - n : n;
        if (!over[t]) {
          threadIdx.x = t;
          swapcontext(&scheduler, &threads[t]);
          left += !over[t];
        }
      }
    }
  }
  free(stacks);
}
"""

KERNEL = re.compile(r'extern "C" __global__ void\s*(?:__launch_bounds__\([^)]*\))?\s*(\w+)\s*\(([^{]*)\)\s*\{', re.S)
NAME = re.compile(r"\w+$")
COMMENT = re.compile(r"//[^\n]*")
C_TYPES = {
    np.dtype(np.int64): ctypes.c_longlong,
    np.dtype(np.int32): ctypes.c_int,
    np.dtype(np.float64): ctypes.c_double,
    np.dtype(np.float32): ctypes.c_float,
}


class EmulatedDevice:
    """Stands in for `berth.cuda.CudaDevice`."""

    def __init__(self, processors: int = 3, shared: int = 200_000) -> None:
        if shutil.which("g++") is None:
            pytest.skip("g++, which compiles the CUDA kernels for the CPU, is not installed")
        self.processors, self.shared = processors, shared

    def array(self, values: Any) -> Any:
        return np.array(values, order="C")

    def zeros(self, shape: Any, dtype: Any) -> Any:
        return np.zeros(shape, dtype)

    def fill(self, place: Any, values: Any) -> None:
        place[...] = values

    def host(self, values: Any) -> Any:
        return np.array(values, order="C")

    def wait(self) -> None:
        """All work is done."""

    def recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        return work

    def kernels(self, code: str, macros: Mapping[str, object], names: Sequence[str]) -> dict[str, Any]:
        library = ctypes.CDLL(str(_compiled(code, macros)))
        return {name: _kernel(library, name) for name in names}


def _compiled(code: str, macros: Mapping[str, object]) -> Path:
    """Shared library of these kernels, each with a function `run_NAME`; compiled once for the same text."""
    defined = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    preprocessed = subprocess.run(
        ["g++", "-E", "-P", "-x", "c++", "-"], input=defined + code, capture_output=True, text=True, check=True
    ).stdout.replace("extern __shared__ Long memory[];", "static Long memory[1 << 16];")
    parts = [PRELUDE, preprocessed]
    for name, parameters in KERNEL.findall(preprocessed):
        parts.append(_runner(name, COMMENT.sub("", parameters)))
    text = "\n".join(parts)
    place = Path(tempfile.gettempdir()) / f"berth-cuda-on-cpu-{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    if not place.exists():
        fresh = place.with_suffix(f".{id(text)}.so")
        subprocess.run(
            ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w", "-x", "c++", "-", "-o", str(fresh)],
            input=text,
            text=True,
            check=True,
        )
        fresh.replace(place)
    return place


def _runner(name: str, parameters: str) -> str:
    """A C function that runs all blocks of one kernel."""
    declared = [" ".join(parameter.split()) for parameter in parameters.split(",")]
    names = [NAME.findall(parameter)[0] for parameter in declared]
    kept = "".join(
        f"static {parameter.removesuffix(one)} kept_{name}_{one};\n"
        for parameter, one in zip(declared, names, strict=True)
    )
    given = ", ".join(f"kept_{name}_{one}" for one in names)
    stored = " ".join(f"kept_{name}_{one} = {one};" for one in names)
    return (
        f"{kept}static void call_{name}() {{ {name}({given}); }}\n"
        f'extern "C" void run_{name}(int its_blocks, int its_threads, {", ".join(declared)}) {{ {stored} '
        f"run_blocks(its_blocks, its_threads, call_{name}, (char*)memory, sizeof(memory)); }}\n"
    )


def _kernel(library: Any, name: str) -> Any:
    function = getattr(library, f"run_{name}")

    def launch(blocks: int, threads: int, shared: int, arguments: Sequence[Any]) -> None:
        passed = [
            argument.ctypes.data_as(ctypes.c_void_p)
            if isinstance(argument, np.ndarray)
            else C_TYPES[argument.dtype](argument.item())
            for argument in arguments
        ]
        function(blocks, threads, *passed)

    return launch
