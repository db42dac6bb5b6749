"""Several allocation problems side by side on a GPU, each with its own cluster, jobs and utilities.

Axes: P problems, J jobs, K resources.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from berth.cuda import Device, real
from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.allocation.kernels.tiles import (
    LANES,
    Tiles,
    build_tiles,
    element_places,
    most_in_a_block,
    unpack_tiles,
)
from berth.families.allocation.policies.requests import dominant_share_order
from berth.families.allocation.problem import AllocationProblem
from berth.model import Floats, Ints

__all__ = ["Batch"]

THREADS = {np.dtype(np.float32): 1024, np.dtype(np.float64): 512}  # most threads of a block
REGISTER_ROWS = 16  # longer segments are read again from memory


class Batch:
    """Layout of problems on the device, and how their work is divided among blocks of threads.

    The problems must have equally many jobs, the same resources and the same utility tables. With `in_turn`, the
    channels of a server follow the order of dominant shares. `programme` is for the kernels of the concave programme,
    which have two sums by cell, else it is for those of the slot.
    """

    def __init__(
        self,
        device: Device,
        problems: Sequence[AllocationProblem],
        dtype: Any = np.float64,
        *,
        in_turn: bool = False,
        programme: bool = False,
    ) -> None:
        self.device, self.problems, self.dtype, self.programme = device, tuple(problems), np.dtype(dtype), programme
        first = self.problems[0]
        self.jobs, self.resources = first.overhead.shape
        for problem in self.problems:
            if problem.gang is not None:
                raise UnsupportedProblem("device='cuda' cannot keep gangs whole; use device='cpu'")
            if problem.overhead.shape != first.overhead.shape:
                raise InvalidInput(f"{self.jobs} jobs and {self.resources} resources", value=problem.overhead.shape)
            if not all(map(np.array_equal, problem.utilities.tables, first.utilities.tables)):
                raise UnsupportedProblem("problems side by side need the same utility tables")
        self.cells = self.jobs * self.resources
        self.orders: list[Ints | None] = [_in_turn(problem) if in_turn else None for problem in self.problems]
        self.tiles = [_tiles(problem, order) for problem, order in zip(self.problems, self.orders, strict=True)]
        self.first_row = np.cumsum([0, *(int(tiles.start[-1]) for tiles in self.tiles)])
        self._plan()
        self._upload()

    def _plan(self) -> None:
        """Divide the tiles of each problem among blocks of threads."""
        size = self.dtype.itemsize
        counts = np.array([len(tiles.kind) for tiles in self.tiles])
        self.first_tile = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        tables = (self.cells + 1) * (8 + 3 * size) + 8
        if self.programme:
            tables = (self.cells + 1) * (16 + 2 * size) + 8 * (self.jobs + 1)
        rows = max((int(np.diff(tiles.start).max(initial=0)) for tiles in self.tiles), default=0)
        self.rows = 4 * -(-rows // 4) if rows <= REGISTER_ROWS else 0
        most_warps = THREADS[self.dtype] // LANES
        self.in_shared = tables <= self.device.shared
        beside = max(1, min(2, self.device.shared // max(tables, 1))) if self.in_shared else 2
        blocks = self.device.processors * beside
        self.warps = int(np.clip(-(-int(counts.sum()) // blocks), 1, most_warps))
        share = np.maximum(counts * (blocks / max(int(counts.sum()), 1)), 1.0).astype(np.int64)
        per_problem = np.clip(share, 1, np.maximum(-(-counts // self.warps), 1))
        self.first_block = np.concatenate([[0], np.cumsum(per_problem)]).astype(np.int32)
        self.blocks = int(self.first_block[-1])
        threads = self.warps * LANES
        self.shared_bytes = max(tables if self.in_shared else 0, 4 * 8 * threads)
        caps = [_requests(problem) for problem in self.problems]
        total = max(
            float((np.bincount(p.channel_job, minlength=self.jobs)[:, None] * p.instance.demand).max())
            for p in self.problems
        )
        self.scale = _scale(total, 62)
        self.narrow = False
        if self.dtype == np.float32 and self.in_shared and not self.programme:
            most = max(
                most_in_a_block(t.start, t.cell, cap, int(n), self.warps)
                for t, cap, n in zip(self.tiles, caps, per_problem, strict=True)
            )
            scale = _scale(most, 30)
            if scale >= 2.0**16:
                self.narrow, self.scale = True, scale
        self._caps = caps

    def _upload(self) -> None:
        put, dtype = self.device.array, self.dtype
        starts = [tiles.start[:-1] + base for tiles, base in zip(self.tiles, self.first_row, strict=False)]
        self._start = put(np.append(np.concatenate(starts), self.first_row[-1]).astype(np.int32))
        self._block_problem = put(np.repeat(np.arange(len(self.problems)), np.diff(self.first_block)).astype(np.int32))
        self.block_of_problem, self._tile_of_problem = put(self.first_block), put(self.first_tile)
        self._kind = put(np.concatenate([tiles.kind for tiles in self.tiles]))
        self._cell = put(np.concatenate([tiles.cell for tiles in self.tiles]))
        pairs = list(zip(self.problems, self.tiles, strict=True))
        self._alpha = put(np.concatenate([_by_lane(p.utilities.alpha, t, 1.0) for p, t in pairs]).astype(dtype))
        self._limit = put(np.concatenate([_by_lane(p.instance.capacity, t, 0.0) for p, t in pairs]).astype(dtype))
        self._cap = put(np.stack(self._caps).astype(dtype))
        self._tables = [put(np.ascontiguousarray(part, dtype=dtype)) for part in self.problems[0].utilities.tables]

    @property
    def macros(self) -> dict[str, object]:
        """Macros with which kernels for this batch are compiled."""
        return {
            "REAL": real(self.dtype),
            "CELL": "unsigned short" if self.tiles[0].cell.dtype == np.uint16 else "int",
            "ROWS": self.rows,
            "SHARED": int(self.in_shared),
            "NARROW": int(self.narrow),
            "THREADS": THREADS[self.dtype],
            "RESOURCES": self.resources,
        }

    @cached_property
    def arguments(self) -> list[Any]:
        """The argument BATCH of a kernel."""
        return [
            self._block_problem,
            self.block_of_problem,
            self._tile_of_problem,
            self._start,
            self._kind,
            self._alpha,
            self._limit,
            self._cell,
            self._cap,
            *self._tables,
            np.int32(self._tables[0].shape[1]),
            np.int32(self.cells + 1),
            np.float64(self.scale),
        ]

    @cached_property
    def price_blocks(self) -> tuple[int, int, int, int]:
        """Division of kernels that work by job: jobs of a block, blocks of a problem, threads, shared memory."""
        size = max(1, 32 // self.resources)
        cells = size * self.resources
        threads = cells * max(1, 512 // cells)
        return size, -(-self.jobs // size), threads, 8 * max(4 * threads, threads + 2 * cells + size)

    @property
    def elements(self) -> int:
        """Number of elements, padding included."""
        return int(self.first_row[-1]) * LANES

    @property
    def sum_rows(self) -> Any:
        """First row of each problem in the array of partial sums, (P+1,)."""
        return self.first_block if self.in_shared else np.arange(len(self.problems) + 1, dtype=np.int32)

    def sums(self) -> Any:
        """Zeroed partial sums by cell: a row for each block, or for each problem."""
        shape = (int(self.sum_rows[-1]), self.cells + 1)
        return self.device.zeros(shape, np.int32 if self.narrow else np.int64)

    def element_values(self) -> Any:
        """A zeroed array with a number for each element, (rows, 32)."""
        return self.device.zeros((int(self.first_row[-1]), LANES), self.dtype)

    def lane_values(self) -> Any:
        """A zeroed array with a number for each segment, (tiles·32,)."""
        return self.device.zeros(int(self.first_tile[-1]) * LANES, self.dtype)

    def decision(self, values: Any, problem: int = 0) -> Floats:
        """Decision (E, K) of one problem from an array of elements on the device."""
        graph, tiles, order = self.problems[problem].instance, self.tiles[problem], self.orders[problem]
        rows = slice(int(self.first_row[problem]), int(self.first_row[problem + 1]))
        listed = np.arange(len(graph.channel_port)) if order is None else order
        element = np.full(tiles.cell.shape, -1, dtype=np.int64)
        element_places(
            graph.server_start, graph.channel_port, graph.demand, listed, tiles.segment, tiles.start, element
        )
        decision = np.zeros(self.problems[problem].cap.shape)
        unpack_tiles(element, self.device.host(values[rows]), decision)
        return decision


def _tiles(problem: AllocationProblem, order: Ints | None) -> Tiles:
    graph = problem.instance
    return build_tiles(
        graph.server_start, graph.channel_port, graph.demand, graph.capacity, problem.utilities.kind, order
    )


def _in_turn(problem: AllocationProblem) -> Ints:
    """Channels of each server in the order of dominant shares, (E,)."""
    graph = problem.instance
    rank = np.empty(len(graph.ports), dtype=np.int64)
    rank[dominant_share_order(problem)] = np.arange(len(rank))
    return np.argsort(graph.channel_server * len(rank) + rank[graph.channel_port])


def _requests(problem: AllocationProblem) -> Floats:
    """Request by cell, 0 for the spare one."""
    return np.append(problem.instance.demand.reshape(-1), 0.0)


def _by_lane(values: Floats, tiles: Tiles, padding: float) -> Floats:
    """Numbers of segments (R, K) by lane."""
    return np.where(tiles.segment >= 0, values.reshape(-1)[tiles.segment], padding)


def _scale(largest: float, bits: int) -> float:
    """The power of two that brings the largest sum below 2^bits."""
    return float(2.0 ** (bits - 1 - math.ceil(math.log2(largest)))) if largest > 0 else 1.0
