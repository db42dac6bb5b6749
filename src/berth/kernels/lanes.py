"""The layout that makes allocation fast: `WIDTH` (server, resource) segments side by side.

A decision is an array (E, K). Every constraint and utility of the allocation problem belongs to one
**segment** (r, k): the channels of server r, resource k. Kernels work on segments of one utility
code in blocks of `WIDTH` lanes: element [row, lane] is the row-th channel of the lane's segment, so
that one instruction serves several segments. Elements that can never be positive (no capacity, or
nothing requested) are left out; padding has a cap of 0 and belongs to one spare cell.

A **cell** is a pair (job, resource), numbered job·K + k: prices and sums live on cells.

Compiled code walks the layout a row at a time through the type `Vector`, the `WIDTH` numbers of a
row held in registers. Spelling the vectors out is what keeps the speed the same from one compiler to
the next: left to find them itself, LLVM keeps a block's running sums in memory, since it cannot tell
that they do not overlap with the arrays being read.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, overload, register_model
from numpy.typing import NDArray

from berth.kernels.compiled import compiled

__all__ = ["WIDTH", "Lanes", "build_lanes", "limits", "pack", "unpack"]

WIDTH = 8


class Vector(types.Type):  # type: ignore[misc]
    """The compiled type of one row: `WIDTH` numbers of one dtype, or `WIDTH` truth values."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype} x {WIDTH})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    """An LLVM vector; the compiler splits it into as many machine registers as it takes."""

    def __init__(self, manager: Any, vector: Any) -> None:
        super().__init__(manager, vector, ir.VectorType(_NUMBERS[vector.dtype], WIDTH))


_NUMBERS = {types.float64: ir.DoubleType(), types.float32: ir.FloatType(), types.boolean: ir.IntType(1)}
_INT32 = ir.IntType(32)


def _spread(builder: Any, scalar: Any) -> Any:
    """A scalar in every lane."""
    nothing = ir.Constant(ir.VectorType(scalar.type, WIDTH), ir.Undefined)
    first = builder.insert_element(nothing, scalar, _INT32(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INT32, WIDTH), [0] * WIDTH))


def _lanewise(emit: Any, arguments: Any, truth: bool = False) -> Any:
    """Signature and code of an operation lane by lane.

    A number among the arguments counts in every lane and takes the vector's dtype, so no constant
    turns float32 into float64.
    """
    number = next((t.dtype for t in arguments if isinstance(t, Vector) and t.dtype != types.boolean), types.boolean)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        spread = [
            value if isinstance(t, Vector) else _spread(builder, context.cast(builder, value, t, number))
            for value, t in zip(values, signature.args, strict=True)
        ]
        return emit(builder, *spread)

    return Vector(types.boolean if truth else number)(*arguments), generate


def _function(name: str, flags: tuple[str, ...] = ()) -> Any:
    """An LLVM function on whole vectors."""

    def emit(builder: Any, *values: Any) -> Any:
        vector = values[0].type
        full_name = f"llvm.{name}.v{WIDTH}{'f64' if vector.element == ir.DoubleType() else 'f32'}"
        function_type = ir.FunctionType(vector, [vector] * len(values))
        function = cgutils.get_or_insert_function(builder.module, function_type, full_name)
        return builder.call(function, values, fastmath=flags)

    return emit


def _one(emit: Any) -> Any:
    return intrinsic(lambda typing, a: _lanewise(emit, (a,)))


def _two(emit: Any, truth: bool = False) -> Any:
    return intrinsic(lambda typing, a, b: _lanewise(emit, (a, b), truth))


def _operator(symbol: Any, emit: Any, truth: bool = False) -> None:
    apply = _two(emit, truth)

    def implementation(a: Any, b: Any) -> Any:
        return apply(a, b)

    @overload(symbol)
    def find(a: Any, b: Any) -> Any:
        return implementation if isinstance(a, Vector) or isinstance(b, Vector) else None


_operator(operator.add, lambda builder, a, b: builder.fadd(a, b))
_operator(operator.iadd, lambda builder, a, b: builder.fadd(a, b))
_operator(operator.sub, lambda builder, a, b: builder.fsub(a, b))
_operator(operator.mul, lambda builder, a, b: builder.fmul(a, b))
_operator(operator.imul, lambda builder, a, b: builder.fmul(a, b))
_operator(operator.truediv, lambda builder, a, b: builder.fdiv(a, b))
_operator(operator.lt, lambda builder, a, b: builder.fcmp_ordered("<", a, b), truth=True)
_operator(operator.gt, lambda builder, a, b: builder.fcmp_ordered(">", a, b), truth=True)
_operator(operator.eq, lambda builder, a, b: builder.fcmp_ordered("==", a, b), truth=True)
_operator(operator.and_, lambda builder, a, b: builder.and_(a, b), truth=True)
_operator(operator.or_, lambda builder, a, b: builder.or_(a, b), truth=True)
# no number is NaN here; saying so makes each of these one instruction
minimum = _two(_function("minnum", ("nnan",)))
maximum = _two(_function("maxnum", ("nnan",)))
root = _one(_function("sqrt"))
logarithm = _one(_function("log"))
where = intrinsic(
    lambda typing, truth, a, b: _lanewise(lambda builder, *values: builder.select(*values), (truth, a, b))
)


@intrinsic
def address(typing: Any, array: Any) -> Any:
    """Where a contiguous array's numbers are; `address(x)[i]` is number i of the flattened array.

    Arrays are counted references: every time one is taken out of a tuple or handed on, an atomic
    counter moves, which costs as much as a row of work. Addresses are not.
    """
    if array.layout != "C":
        raise TypingError("lanes are contiguous arrays")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.make_array(array)(context, builder, values[0]).data

    return types.CPointer(array.dtype)(array), generate


def _row(builder: Any, start: Any, i: Any, vector: Any) -> Any:
    return builder.bitcast(builder.gep(start, [builder.mul(i, i.type(WIDTH))]), vector.as_pointer())


@intrinsic
def load(typing: Any, start: Any, i: Any) -> Any:
    """Row i of an array (·, WIDTH) at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place, i = values
        vector = context.get_value_type(signature.return_type)
        return builder.load(_row(builder, place, i, vector), align=start.dtype.bitwidth // 8)

    return Vector(start.dtype)(start, types.int64), generate


@intrinsic
def store(typing: Any, start: Any, i: Any, vector: Any) -> Any:
    """Make row i of an array (·, WIDTH) at an address this vector."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place, i, value = values
        builder.store(value, _row(builder, place, i, value.type), align=start.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(start, types.int64, vector), generate


@intrinsic
def filled(typing: Any, start: Any, number: Any) -> Any:
    """A number in every lane, of the dtype at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return _spread(builder, context.cast(builder, values[1], number, start.dtype))

    return Vector(start.dtype)(start, number), generate


@intrinsic
def gather_pairs(typing: Any, pairs: Any, index: Any, i: Any) -> Any:
    """The two columns of an array (·, 2) at the rows named in row i of `index`, as two vectors.

    Both numbers of a pair come with one load, two lanes at a time are then transposed in registers.
    """
    vector = Vector(pairs.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data, places, row = values
        pair = ir.VectorType(_NUMBERS[pairs.dtype], 2)
        parts = []
        for j in range(WIDTH):
            number = builder.add(builder.mul(row, row.type(WIDTH)), row.type(j))
            place = builder.sext(builder.load(builder.gep(places, [number])), row.type)
            start = builder.gep(data, [builder.mul(place, place.type(2))])
            parts.append(builder.load(builder.bitcast(start, pair.as_pointer()), align=pairs.dtype.bitwidth // 8))
        while len(parts) > 1:  # join neighbours: pairs, then fours, …
            length = 2 * parts[0].type.count
            mask = ir.Constant(ir.VectorType(_INT32, length), list(range(length)))
            parts = [builder.shuffle_vector(a, b, mask) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        columns = []
        for column in range(2):
            mask = ir.Constant(ir.VectorType(_INT32, WIDTH), list(range(column, 2 * WIDTH, 2)))
            columns.append(builder.shuffle_vector(parts[0], parts[0], mask))
        return context.make_tuple(builder, signature.return_type, columns)

    return types.UniTuple(vector, 2)(pairs, index, types.int64), generate


@intrinsic
def lane(typing: Any, vector: Any, j: Any) -> Any:
    """Number j of a vector."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.extract_element(*values)

    return vector.dtype(vector, types.int64), generate


@intrinsic
def with_lane(typing: Any, vector: Any, j: Any, number: Any) -> Any:
    """The vector with its number j replaced."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.insert_element(values[0], values[2], values[1])

    return vector(vector, types.int64, vector.dtype), generate


@intrinsic
def total(typing: Any, vector: Any) -> Any:
    """Sum of the lanes: halves added to halves."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (value,) = values
        while (half := value.type.count // 2) > 0:
            masks = [ir.Constant(ir.VectorType(_INT32, half), [j + s for j in range(half)]) for s in (0, half)]
            value = builder.fadd(*(builder.shuffle_vector(value, value, mask) for mask in masks))
        return builder.extract_element(value, _INT32(0))

    return vector.dtype(vector), generate


@intrinsic
def any_lane(typing: Any, truth: Any) -> Any:
    """Whether any lane is true."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        function_type = ir.FunctionType(ir.IntType(1), [values[0].type])
        function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.vector.reduce.or.v{WIDTH}i1")
        return builder.call(function, values)

    return types.boolean(truth), generate


class Lanes(NamedTuple):
    """Blocks b, rows i, lanes j. All arrays; passed whole to compiled functions."""

    start: NDArray[np.int64]  # (B+1,) first row of each block
    kind: NDArray[np.int64]  # (B,) utility code of the block
    alpha: NDArray[Any]  # (B, W)
    server: NDArray[np.int64]  # (B, W) segment's server; R in padding
    resource: NDArray[np.int64]  # (B, W)
    cap: NDArray[Any]  # (N, W) a: the most this element may get
    cell: NDArray[np.int32]  # (N, W) job·K + k; J·K in padding
    element: NDArray[np.int64]  # (N, W) place in a decision, e·K + k; E·K in padding
    slopes: NDArray[Any]  # (U, M) utility tables
    values: NDArray[Any]  # (U, M)
    steps: NDArray[Any]  # (U,)
    shared: NDArray[np.int32]  # (N,) the cell of a row all of whose lanes have the same; else -1


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
    # equal sizes waste no rows, equal resources give rows of a single cell where all ports are connected
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
    """Lanes (N, W) → decision (E, K); elements that are not laid out stay as they are."""
    flat = decision.reshape(-1)
    last = flat.shape[0]
    for i in range(element.shape[0]):
        for j in range(element.shape[1]):
            place = element[i, j]
            if place < last:
                flat[place] = values[i, j]
