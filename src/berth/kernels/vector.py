"""Vectors as one value in compiled code: the type `Vector` and its operations.

Explicit vectors keep the speed the same across compilers: LLVM's own vectoriser keeps running sums in memory, because
it cannot prove that they do not alias the arrays being read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, overload, register_model

__all__ = [
    "WIDTH",
    "address",
    "any_lane",
    "filled",
    "gather_pairs",
    "lane",
    "load",
    "logarithm",
    "maximum",
    "minimum",
    "root",
    "store",
    "total",
    "where",
    "with_lane",
]

WIDTH = 8


def _operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Offer the generated code to compiled functions, which call it without its first argument."""
    return cast(Callable[..., Any], intrinsic(function))


class Vector(types.Type):  # type: ignore[misc]
    """Compiled type of one row: `WIDTH` numbers of one dtype, or `WIDTH` booleans."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype} x {WIDTH})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    """An LLVM vector; the compiler splits it into as many machine registers as needed."""

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
    """Signature and code of a lane-wise operation.

    A scalar argument is broadcast to every lane in the vector's dtype, so no constant turns float32 into float64.
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

    def find(a: Any, b: Any) -> Any:
        return implementation if isinstance(a, Vector) or isinstance(b, Vector) else None

    overload(symbol)(find)


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
# no number is NaN here; this flag makes each of these one instruction
minimum = _two(_function("minnum", ("nnan",)))
maximum = _two(_function("maxnum", ("nnan",)))
root = _one(_function("sqrt"))
logarithm = _one(_function("log"))
where = intrinsic(
    lambda typing, truth, a, b: _lanewise(lambda builder, *values: builder.select(*values), (truth, a, b))
)


@_operation
def address(typing: Any, array: Any) -> Any:
    """Address of a contiguous array's data; `address(x)[i]` is element i of the flattened array.

    Arrays are reference counted: taking one out of a tuple or passing it on moves an atomic counter, which costs as
    much as a row of work. Addresses are not counted.
    """
    if array.layout != "C":
        raise TypingError("lanes are contiguous arrays")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return context.make_array(array)(context, builder, values[0]).data

    return types.CPointer(array.dtype)(array), generate


def _row(builder: Any, start: Any, i: Any, vector: Any) -> Any:
    return builder.bitcast(builder.gep(start, [builder.mul(i, i.type(WIDTH))]), vector.as_pointer())


@_operation
def load(typing: Any, start: Any, i: Any) -> Any:
    """Row i of an array (·, WIDTH) at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place, i = values
        vector = context.get_value_type(signature.return_type)
        return builder.load(_row(builder, place, i, vector), align=start.dtype.bitwidth // 8)

    return Vector(start.dtype)(start, types.int64), generate


@_operation
def store(typing: Any, start: Any, i: Any, vector: Any) -> Any:
    """Store this vector as row i of an array (·, WIDTH) at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place, i, value = values
        builder.store(value, _row(builder, place, i, value.type), align=start.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(start, types.int64, vector), generate


@_operation
def filled(typing: Any, start: Any, number: Any) -> Any:
    """A scalar in every lane, of the dtype at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return _spread(builder, context.cast(builder, values[1], number, start.dtype))

    return Vector(start.dtype)(start, number), generate


@_operation
def gather_pairs(typing: Any, pairs: Any, index: Any, i: Any) -> Any:
    """The two columns of an array (·, 2) at the rows named in row i of `index`, as two vectors.

    One load fetches both numbers of a pair; pairs of lanes are then transposed in registers.
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


@_operation
def lane(typing: Any, vector: Any, j: Any) -> Any:
    """Element j of a vector."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.extract_element(*values)

    return vector.dtype(vector, types.int64), generate


@_operation
def with_lane(typing: Any, vector: Any, j: Any, number: Any) -> Any:
    """The vector with element j replaced."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.insert_element(values[0], values[2], values[1])

    return vector(vector, types.int64, vector.dtype), generate


@_operation
def total(typing: Any, vector: Any) -> Any:
    """Sum of the lanes, by halving."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (value,) = values
        while (half := value.type.count // 2) > 0:
            masks = [ir.Constant(ir.VectorType(_INT32, half), [j + s for j in range(half)]) for s in (0, half)]
            value = builder.fadd(*(builder.shuffle_vector(value, value, mask) for mask in masks))
        return builder.extract_element(value, _INT32(0))

    return vector.dtype(vector), generate


@_operation
def any_lane(typing: Any, truth: Any) -> Any:
    """Whether any lane is true."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        function_type = ir.FunctionType(ir.IntType(1), [values[0].type])
        function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.vector.reduce.or.v{WIDTH}i1")
        return builder.call(function, values)

    return types.boolean(truth), generate
