"""Data layout of the allocation kernels: `WIDTH` (server, resource) segments side by side.

A decision is an array (E, K). Every constraint and utility of the allocation problem belongs to one **segment** (r, k):
the channels of server r, resource k. Kernels work on segments of one utility code in blocks of `WIDTH` lanes: element
[row, lane] is the row-th channel of the lane's segment, so one instruction serves several segments. Elements that can
never be positive (no capacity, or no request) are left out; padding has a cap of 0 and belongs to one spare cell.

A **cell** is a pair (job, resource), numbered job·K + k; prices and sums are per cell.

Compiled code walks the layout a row at a time, the `WIDTH` numbers of a row in one `berth.kernels.vector`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.kernels.compiled import compiled, inlined
from berth.kernels.vector import WIDTH, filled, gather_pairs

__all__ = ["WIDTH", "Lanes", "build_lanes", "limits", "pack", "unpack"]


class Lanes(NamedTuple):
    """Blocks b, rows i, lanes j. All arrays; passed whole to compiled functions."""

    start: NDArray[np.int64]  # (B+1,) first row of each block
    kind: NDArray[np.int64]  # (B,) utility code of the block
    alpha: NDArray[Any]  # (B, W)
    server: NDArray[np.int64]  # (B, W) segment's server; R in padding
    resource: NDArray[np.int64]  # (B, W)
    cap: NDArray[Any]  # (N, W) a: upper bound of the element
    cell: NDArray[np.int32]  # (N, W) job·K + k; J·K in padding
    element: NDArray[np.int64]  # (N, W) place in a decision, e·K + k; E·K in padding
    slopes: NDArray[Any]  # (U, M) utility tables
    values: NDArray[Any]  # (U, M)
    steps: NDArray[Any]  # (U,)
    shared: NDArray[np.int32]  # (N,) the cell of a row if all its lanes share one; else -1


def build_lanes(
    server_start: NDArray[np.int64],
    channel_job: NDArray[np.int64],
    cap: NDArray[np.float64],
    capacity: NDArray[np.float64],
    kind: NDArray[np.int64],
    alpha: NDArray[np.float64],
    jobs: int,
    tables: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    dtype: Any = np.float64,
) -> Lanes:
    """Lay out channels sorted by server; `cap` is (E, K), `capacity`, `kind`, `alpha` are (R, K)."""
    channels, resources = cap.shape
    servers = len(server_start) - 1
    channel_server = np.repeat(np.arange(servers), np.diff(server_start))
    # every element that can be positive, ordered by segment (utility code, size, resource, server):
    # equal sizes waste no rows, equal resources give rows of a single cell if all ports are connected
    e, k = np.nonzero((cap > 0) & (capacity[channel_server] > 0))
    segment = channel_server[e] * resources + k
    size = np.bincount(segment, minlength=servers * resources)
    used = np.flatnonzero(size)
    codes = kind.reshape(-1)[used]
    used = used[np.lexsort((used, used % resources, -size[used], codes))]
    codes = kind.reshape(-1)[used]
    # lanes: consecutive segments of one code, WIDTH to a block
    blocks_of_code = [-(-int(n) // WIDTH) for n in np.unique(codes, return_counts=True)[1]]
    block_count = sum(blocks_of_code)
    lane_of_segment = np.full(servers * resources, -1)
    block_kind = np.repeat(np.unique(codes), blocks_of_code).astype(np.int64)
    first_block = np.concatenate([[0], np.cumsum(blocks_of_code)])
    for code_place, code in enumerate(np.unique(codes)):
        members = used[codes == code]
        lane_of_segment[members] = first_block[code_place] * WIDTH + np.arange(len(members))
    segment_of_lane = np.full(block_count * WIDTH, -1)
    segment_of_lane[lane_of_segment[used]] = used
    lane_size = np.where(segment_of_lane >= 0, size[np.maximum(segment_of_lane, 0)], 0)
    rows_of_block = lane_size.reshape(block_count, WIDTH).max(axis=1) if block_count else np.zeros(0, np.int64)
    start = np.concatenate([[0], np.cumsum(rows_of_block)]).astype(np.int64)
    # the row of an element is its rank within its segment
    order = np.lexsort((e, segment))
    ranked = segment[order]
    rank = np.empty(len(e), dtype=np.int64)
    rank[order] = np.arange(len(e)) - np.searchsorted(ranked, ranked)
    lane = lane_of_segment[segment]
    row = start[lane // WIDTH] + rank
    shape = (int(start[-1]), WIDTH)
    caps = np.zeros(shape, dtype=dtype)
    cells = np.full(shape, jobs * resources, dtype=np.int32)
    elements = np.full(shape, channels * resources, dtype=np.int64)
    caps[row, lane % WIDTH] = cap[e, k]
    cells[row, lane % WIDTH] = channel_job[e] * resources + k
    elements[row, lane % WIDTH] = e * resources + k
    real = segment_of_lane >= 0
    lane_server = np.where(real, segment_of_lane // resources, servers).reshape(block_count, WIDTH)
    lane_resource = np.where(real, segment_of_lane % resources, 0).reshape(block_count, WIDTH)
    alphas = np.ones(block_count * WIDTH)
    alphas[real] = alpha.reshape(-1)[segment_of_lane[real]]
    return Lanes(
        start,
        block_kind,
        alphas.reshape(block_count, WIDTH).astype(dtype),
        lane_server,
        lane_resource,
        caps,
        cells,
        elements,
        np.ascontiguousarray(tables[0], dtype=dtype),
        np.ascontiguousarray(tables[1], dtype=dtype),
        np.ascontiguousarray(tables[2], dtype=dtype),
        np.where((cells == cells[:, :1]).all(axis=1), cells[:, 0], -1).astype(np.int32),
    )


def limits(lanes: Lanes, capacity: NDArray[np.float64]) -> NDArray[Any]:
    """Capacity (R, K) laid out by lane (B, W); 0 in padding."""
    padded = np.vstack([capacity, np.zeros((1, capacity.shape[1]))])
    return np.ascontiguousarray(padded[lanes.server, lanes.resource], dtype=lanes.cap.dtype)


@compiled
def by_cell(weight: Any, resources: int, like: Any) -> Any:
    """Pairs (weight of the cell's job, 0) by cell, (cells + 1, 2); 0 for the spare cell of the padding."""
    out = np.zeros((weight.shape[0] * resources + 1, 2), like.dtype)
    for job in range(weight.shape[0]):
        for k in range(resources):
            out[job * resources + k, 0] = weight[job]
    return out


@inlined
def cell_pairs(pairs: Any, shared: Any, cell: Any, i: Any) -> Any:
    """Both columns of an array (cells, 2) for the cells of row i, as two vectors; all four are addresses."""
    here = shared[i]
    if here >= 0:
        return filled(pairs, pairs[2 * here]), filled(pairs, pairs[2 * here + 1])
    return gather_pairs(pairs, cell, i)


@compiled
def pack(element: Any, decision: Any, out: Any) -> None:
    """Decision (E, K) → lanes (N, W)."""
    flat = decision.reshape(-1)
    last = flat.shape[0]
    for i in range(element.shape[0]):
        for j in range(element.shape[1]):
            place = element[i, j]
            out[i, j] = flat[place] if place < last else 0.0


@compiled
def unpack(element: Any, values: Any, decision: Any) -> None:
    """Lanes (N, W) → decision (E, K); elements outside the layout are unchanged."""
    flat = decision.reshape(-1)
    last = flat.shape[0]
    for i in range(element.shape[0]):
        for j in range(element.shape[1]):
            place = element[i, j]
            if place < last:
                flat[place] = values[i, j]
