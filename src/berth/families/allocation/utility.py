"""Utilities: the gain of a job as a function of what it gets.

The four of the papers are built in. `Utility.from_function` converts any concave function: its slope is tabulated,
checked to be finite, ≥ 0 and non-increasing, and runs in the same compiled kernels. A package offers utilities by name
through the entry point group `berth.utilities`.

Axes: R servers, K resources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points

import numpy as np
from numpy.typing import ArrayLike, NDArray

from berth.errors import InvalidInput, UnknownName
from berth.families.allocation.kernels.utilities import LINEAR, LOG, POLY, RECIPROCAL, TABLE, slope, tabulate, utility
from berth.model import Floats, FrozenArrays, frozen_array

__all__ = ["BUILTIN", "Utilities", "Utility", "utility_named"]


@dataclass(frozen=True, eq=False)
class Utility(FrozenArrays):
    """A concave utility f with f(0) = 0, scaled by α.

    >>> amdahl = Utility.from_function("amdahl", lambda y: y / (1 + 0.1 * y), upto=50)
    >>> round(amdahl(10.0), 4)
    5.0
    >>> Utility.from_function("convex", lambda y: y**2, upto=5)
    Traceback (most recent call last):
    berth.errors.InvalidInput: utility 'convex': got a slope that rises near y = 0.00244141, expected a concave function
    """

    name: str
    code: int
    slopes: Floats | None = None
    step: float = 1.0

    @classmethod
    def from_function(
        cls,
        name: str,
        function: Callable[[Floats], ArrayLike],
        *,
        upto: float,
        slope: Callable[[Floats], ArrayLike] | None = None,
        knots: int = 4097,
    ) -> Utility:
        """Tabulate `function` (or better its `slope`) on [0, upto]; beyond, it continues with its last slope.

        `function` and `slope` take an array of y. Without `slope` the mean slope between knots is used.
        """
        if knots < 3:
            raise InvalidInput("at least 3", value=knots, key=f"utility {name!r}.knots")
        start = float(np.asarray(function(np.zeros(1)), dtype=np.float64).reshape(-1)[0])
        if not abs(start) <= 1e-9:
            raise InvalidInput("a function that is 0 at 0", found=f"{start:g} there", key=f"utility {name!r}")
        if not (np.isfinite(upto) and upto > 0):
            raise InvalidInput("a number > 0", value=upto, key=f"utility {name!r}.upto")
        places = np.linspace(0.0, upto, knots)
        if slope is not None:
            slopes = np.asarray(slope(places), dtype=np.float64)
        else:
            middles = np.concatenate([[0.0], 0.5 * (places[1:] + places[:-1]), [upto]])
            values = np.asarray(function(middles), dtype=np.float64)
            slopes = np.diff(values) / np.diff(middles)
        key = f"utility {name!r}"
        if slopes.shape != places.shape or not np.isfinite(slopes).all():
            raise InvalidInput(f"finite values for all y in [0, {upto:g}]", key=key)
        if (slopes < 0).any():
            where = float(places[int(np.argmax(slopes < 0))])
            raise InvalidInput("a function that never falls", found=f"a falling one near y = {where:g}", key=key)
        rising = np.diff(slopes) > 1e-9 * float(slopes.max())
        if rising.any():
            where = float(places[int(np.argmax(rising)) + 1])
            raise InvalidInput("a concave function", found=f"a slope that rises near y = {where:g}", key=key)
        return cls(name, TABLE, frozen_array(np.minimum.accumulate(slopes), key), upto / (knots - 1))

    def _tables(self) -> tuple[Floats, Floats, Floats]:
        slopes = np.zeros(2) if self.slopes is None else self.slopes
        return slopes[None], tabulate(slopes, self.step)[None], np.array([self.step])

    def __call__(self, y: float, alpha: float = 1.0) -> float:
        """f(y) with this α."""
        slopes, values, steps = self._tables()
        return float(utility(self.code, alpha, float(y), slopes, values, steps))

    def slope(self, y: float, alpha: float = 1.0) -> float:
        """f'(y) with this α."""
        slopes, _, steps = self._tables()
        return float(slope(self.code, alpha, float(y), slopes, steps))


BUILTIN = {
    "linear": Utility("linear", LINEAR),
    "log": Utility("log", LOG),
    "reciprocal": Utility("reciprocal", RECIPROCAL),
    "poly": Utility("poly", POLY),
}
"""Utilities of the papers, eq. (51): αy; α ln(y+1); 1/α − 1/(y+α); α√(y+1) − α."""


def utility_named(name: str) -> Utility:
    """A built-in utility, or one that an installed package offers under `berth.utilities`."""
    if name in BUILTIN:
        return BUILTIN[name]
    offered = {point.name: point for point in entry_points(group="berth.utilities")}
    if name not in offered:
        raise UnknownName("utility", name, [*BUILTIN, *offered])
    loaded = offered[name].load()
    if not isinstance(loaded, Utility):
        raise InvalidInput(
            "a berth.families.allocation.utility.Utility", value=loaded, key=f"entry point berth.utilities:{name}"
        )
    return loaded


@dataclass(frozen=True, eq=False)
class Utilities(FrozenArrays):
    """Utility and α of each resource on each server: `choice`, `alpha` are (R, K).

    >>> Utilities(("log",), [[0, 0]], [[1.0, 1.2]]).kind
    array([[1, 1]])
    """

    kinds: tuple[str | Utility, ...]
    choice: NDArray[np.int64]
    alpha: Floats
    kind: NDArray[np.int64] = field(init=False)
    tables: tuple[Floats, Floats, Floats] = field(init=False)

    def __post_init__(self) -> None:
        choice = np.array(self.choice, dtype=np.int64)
        if choice.ndim != 2 or (choice < 0).any() or (choice >= len(self.kinds)).any():
            raise InvalidInput(f"indices (R, K) below {len(self.kinds)}", value=choice.shape, key="choice")
        choice.setflags(write=False)
        object.__setattr__(self, "kinds", tuple(self.kinds))
        object.__setattr__(self, "choice", choice)
        alpha = frozen_array(self.alpha, "alpha", choice.shape)
        if (alpha <= 0).any():
            raise InvalidInput("numbers > 0", value=float(alpha.min()), key="alpha")
        object.__setattr__(self, "alpha", alpha)
        resolved = [u if isinstance(u, Utility) else utility_named(u) for u in self.kinds]
        tables = [u for u in resolved if u.code == TABLE]
        codes = np.array([TABLE + tables.index(u) if u.code == TABLE else u.code for u in resolved], dtype=np.int64)
        kind = codes[choice]
        kind.setflags(write=False)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "tables", _stack(tables))


def _stack(tables: Sequence[Utility]) -> tuple[Floats, Floats, Floats]:
    """Slopes (U, M), values (U, M), steps (U,), read-only; shorter tables continue with their last slope."""
    if not tables:
        return _locked(np.zeros((1, 2)), np.zeros((1, 2)), np.ones(1))
    knots = [np.zeros(2) if table.slopes is None else table.slopes for table in tables]
    width = max(len(k) for k in knots)
    slopes = np.array([np.pad(k, (0, width - len(k)), mode="edge") for k in knots])
    steps = np.array([t.step for t in tables])
    values = np.array([tabulate(row, step) for row, step in zip(slopes, steps, strict=True)])
    return _locked(slopes, values, steps)


def _locked(slopes: Floats, values: Floats, steps: Floats) -> tuple[Floats, Floats, Floats]:
    for array in (slopes, values, steps):
        array.setflags(write=False)
    return slopes, values, steps
