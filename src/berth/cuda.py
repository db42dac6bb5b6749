"""Access to a GPU through CuPy: arrays, kernels compiled at run time, recorded sequences of launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from berth.errors import InvalidInput, MissingExtra

__all__ = ["CudaDevice", "Device", "Kernel", "open_device", "real", "source"]

Kernel = Callable[[int, int, int, Sequence[Any]], None]
"""A kernel: called with the number of blocks, threads of a block, bytes of shared memory, and the arguments."""


def source(module: str, *names: str) -> str:
    """Text of the CUDA files with these names beside a module's file, one after the other."""
    return "\n".join((Path(module).parent / name).read_text(encoding="utf-8") for name in names)


class Device(Protocol):
    """What the runs need of a GPU."""

    processors: int
    shared: int
    """Bytes of shared memory that a block may have."""

    def array(self, values: Any) -> Any:
        """Copy an array to the device, in C order."""
        ...

    def zeros(self, shape: Any, dtype: Any) -> Any: ...

    def fill(self, place: Any, values: Any) -> None:
        """Set an array on the device to a number, or to an array of this shape from the host or the device."""
        ...

    def host(self, values: Any) -> Any:
        """Copy an array from the device, when all work on it is done."""
        ...

    def kernels(self, code: str, macros: Mapping[str, object], names: Sequence[str]) -> dict[str, Kernel]:
        """Compile the code and return these kernels."""
        ...

    def recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        """The launches of `work` as one; `work` must have run once before."""
        ...


class CudaDevice:
    """A GPU of this machine; `number` counts from 0."""

    def __init__(self, number: int = 0) -> None:
        try:
            import cupy
        except ImportError as error:
            raise MissingExtra("device='cuda'", "cuda") from error
        self._cupy = cupy
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            found = f"no GPU that CUDA can use ({error})"
            raise InvalidInput("a GPU; 'cpu' needs none", found=found, key="device") from error
        if number >= count:
            raise InvalidInput(f"one of the {count} GPUs", value=f"cuda:{number}", key="device")
        self._number = number
        cupy.cuda.Device(number).use()
        facts = cupy.cuda.runtime.getDeviceProperties(number)
        self.name = facts["name"].decode()
        self.processors = int(facts["multiProcessorCount"])
        self.shared = int(facts["sharedMemPerBlockOptin"])
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._compiled: dict[Any, dict[str, Kernel]] = {}

    def array(self, values: Any) -> Any:
        with self._stream:
            return self._cupy.array(values, order="C")

    def zeros(self, shape: Any, dtype: Any) -> Any:
        with self._stream:
            return self._cupy.zeros(shape, dtype)

    def fill(self, place: Any, values: Any) -> None:
        with self._stream:
            if isinstance(values, np.ndarray):
                place.set(np.ascontiguousarray(values, dtype=place.dtype))
            else:
                place[...] = values

    def host(self, values: Any) -> Any:
        self._stream.synchronize()
        with self._stream:
            return self._cupy.asnumpy(values)

    def wait(self) -> None:
        """Return when all work is done."""
        self._stream.synchronize()

    def kernels(self, code: str, macros: Mapping[str, object], names: Sequence[str]) -> dict[str, Kernel]:
        key = (code, tuple(sorted(macros.items(), key=str)), tuple(names))
        if key not in self._compiled:
            defined = (f"-D{name}={value}" for name, value in macros.items())
            options = ("--std=c++17", *defined)
            module = self._cupy.RawModule(code=code, options=options)
            self._compiled[key] = {name: self._kernel(module.get_function(name)) for name in names}
        return self._compiled[key]

    def _kernel(self, function: Any) -> Kernel:
        largest = 48 * 1024  # more must be asked for

        def launch(blocks: int, threads: int, shared: int, arguments: Sequence[Any]) -> None:
            nonlocal largest
            if shared > largest:
                function.max_dynamic_shared_size_bytes = largest = shared
            with self._stream:
                function((blocks,), (threads,), tuple(arguments), shared_mem=shared)

        return launch

    def recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        with self._stream:
            self._stream.begin_capture()
            work()
            graph = self._stream.end_capture()

        def launch() -> None:
            graph.launch(self._stream)

        return launch


@cache
def open_device(name: str) -> CudaDevice:
    """The GPU of this name: "cuda", or "cuda:1" for the second; kernels are compiled once a process."""
    kind, _, number = name.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise InvalidInput("'cpu', 'cuda' or 'cuda:N'", value=name, key="device")
    return CudaDevice(int(number or 0))


def real(dtype: Any) -> str:
    """Name in CUDA of float32 or float64."""
    return {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}[np.dtype(dtype)]
