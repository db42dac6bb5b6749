"""Data layout of the GPU kernels: tiles of 32 (server, resource) segments, one for each thread of a warp.

Like `berth.families.allocation.kernels.lanes`, element [row, lane] of a tile is the row-th channel of the lane's
segment, and elements that can never be positive are left out. Segments are ordered by utility code, then size, then
resource: the segments of a tile have one code and nearly one size. The builders are compiled and need little memory
besides their result, so that a million servers take seconds.

Axes: R servers, K resources, E channels, J jobs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.kernels.compiled import compiled

__all__ = ["LANES", "Tiles", "build_tiles", "element_places", "most_in_a_block", "unpack_tiles"]

LANES = 32


class Tiles(NamedTuple):
    """Tiles of one problem; padding has segment −1 and the spare cell J·K."""

    segment: NDArray[np.int64]  # (tiles·32,) r·K + k of each lane
    start: NDArray[np.int32]  # (tiles+1,) first row of each tile
    kind: NDArray[np.int32]  # (tiles,) utility code
    cell: NDArray[Any]  # (rows, 32) job·K + k; uint16 if that suffices, else int32


def build_tiles(
    server_start: NDArray[np.int64],
    channel_job: NDArray[np.int64],
    demand: NDArray[np.float64],
    capacity: NDArray[np.float64],
    kind: NDArray[np.int64],
    order: NDArray[np.int64] | None = None,
) -> Tiles:
    """Lay out channels sorted by server; `demand` is (J, K), `capacity` and `kind` are (R, K).

    `order` (E,), if given, lists the channels of each server in another order: the rows of a segment follow it.
    """
    jobs, resources = demand.shape
    size = np.zeros(capacity.shape, dtype=np.int32)
    _sizes(server_start, channel_job, demand, capacity, size)
    codes = int(kind.max(initial=0)) + 1
    longest = int(size.max(initial=0))
    bucket = np.zeros((codes, longest + 1, resources), dtype=np.int64)
    _count(size, kind, bucket)
    of_code = bucket.sum(axis=(1, 2))
    tiles_of_code = -(-of_code // LANES)
    place = np.cumsum(bucket.reshape(codes, -1), axis=1).reshape(bucket.shape) - bucket
    place += (LANES * (np.cumsum(tiles_of_code) - tiles_of_code))[:, None, None]
    tiles = int(tiles_of_code.sum())
    segment = np.full(tiles * LANES, -1, dtype=np.int64)
    _order(size, kind, place, segment)
    sizes = np.where(segment >= 0, size.reshape(-1)[segment], 0).reshape(tiles, LANES)
    start = np.concatenate([[0], np.cumsum(sizes.max(axis=1, initial=0))]).astype(np.int32)
    wide = jobs * resources + 1 > np.iinfo(np.uint16).max
    cell = np.full((int(start[-1]), LANES), jobs * resources, dtype=np.int32 if wide else np.uint16)
    listed = np.arange(len(channel_job)) if order is None else order
    _cells(server_start, channel_job, demand, listed, segment, start, cell)
    return Tiles(segment, start, np.repeat(np.arange(codes), tiles_of_code).astype(np.int32), cell)


@compiled
def _sizes(server_start: Any, channel_job: Any, demand: Any, capacity: Any, size: Any) -> None:
    """Number of channels of each segment that can get something."""
    for r in range(capacity.shape[0]):
        for e in range(server_start[r], server_start[r + 1]):
            for k in range(capacity.shape[1]):
                if capacity[r, k] > 0.0 and demand[channel_job[e], k] > 0.0:
                    size[r, k] += 1


@compiled
def _count(size: Any, kind: Any, bucket: Any) -> None:
    """Number of segments that are not empty, by code, size (largest first) and resource."""
    longest = bucket.shape[1] - 1
    for r in range(size.shape[0]):
        for k in range(size.shape[1]):
            if size[r, k] > 0:
                bucket[kind[r, k], longest - size[r, k], k] += 1


@compiled
def _order(size: Any, kind: Any, place: Any, segment: Any) -> None:
    """Put each segment at the next place of its bucket."""
    longest = place.shape[1] - 1
    for r in range(size.shape[0]):
        for k in range(size.shape[1]):
            if size[r, k] > 0:
                at = place[kind[r, k], longest - size[r, k], k]
                segment[at] = r * size.shape[1] + k
                place[kind[r, k], longest - size[r, k], k] = at + 1


@compiled
def _cells(server_start: Any, channel_job: Any, demand: Any, listed: Any, segment: Any, start: Any, cell: Any) -> None:
    """Cell of every element."""
    resources = demand.shape[1]
    for lane in range(segment.shape[0]):
        if segment[lane] >= 0:
            r, k = segment[lane] // resources, segment[lane] % resources
            row = start[lane // LANES]
            for place in range(server_start[r], server_start[r + 1]):
                job = channel_job[listed[place]]
                if demand[job, k] > 0.0:
                    cell[row, lane % LANES] = job * resources + k
                    row += 1


@compiled
def element_places(
    server_start: Any, channel_job: Any, demand: Any, listed: Any, segment: Any, start: Any, element: Any
) -> None:
    """element (rows, 32) = place e·K + k in a decision of every element; padding is unchanged."""
    resources = demand.shape[1]
    for lane in range(segment.shape[0]):
        if segment[lane] >= 0:
            r, k = segment[lane] // resources, segment[lane] % resources
            row = start[lane // LANES]
            for place in range(server_start[r], server_start[r + 1]):
                e = listed[place]
                if demand[channel_job[e], k] > 0.0:
                    element[row, lane % LANES] = e * resources + k
                    row += 1


@compiled
def unpack_tiles(element: Any, values: Any, decision: Any) -> None:
    """Values (rows, 32) → decision (E, K); padding has element −1."""
    flat = decision.reshape(-1)
    for i in range(element.shape[0]):
        for j in range(element.shape[1]):
            if element[i, j] >= 0:
                flat[element[i, j]] = values[i, j]


@compiled
def most_in_a_block(start: Any, cell: Any, cap: Any, blocks: int, warps: int) -> float:
    """Largest sum of requests of one cell over the tiles of one of `blocks` blocks of threads."""
    most = 0.0
    sums = np.zeros(cap.shape[0])
    for block in range(blocks):
        sums[:] = 0.0
        for tile in range(start.shape[0] - 1):
            if tile // warps % blocks == block:
                for i in range(start[tile], start[tile + 1]):
                    for j in range(cell.shape[1]):
                        sums[cell[i, j]] += cap[cell[i, j]]
        for c in range(cap.shape[0]):
            most = max(most, sums[c])
    return most
