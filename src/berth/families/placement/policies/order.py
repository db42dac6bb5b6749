"""Order of a queue that a network learned: weights, their file, and the orders that come with berth."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.kernels.order_network import FEATURES, PREDICTED, SIZE
from berth.model import Floats

__all__ = ["FORMAT", "SHIPPED", "Order", "order_named"]

FORMAT = "berth queue order 1"
SHIPPED = {"default": "sdsc-sp2", "sdsc-sp2": "sdsc-sp2", "lublin-256": "lublin-256"}
"""Orders that come with berth, and the file of each; `python -m benchmarks.learned_order --train` writes them."""


@dataclass(frozen=True, eq=False)
class Order:
    """Weights of a network that scores waiting jobs, in one vector, (W,); `made` records how it was trained.

    >>> order = Order.fresh(np.random.default_rng(0), hidden=2)
    >>> np.array_equal(Order.parse(order.text()).weights, order.weights)
    True
    """

    weights: Floats
    made: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        whole = weights.ndim == 1 and weights.size >= FEATURES and (weights.size - FEATURES) % (FEATURES + 2) == 0
        if not whole or not np.isfinite(weights).all():
            expected = f"{FEATURES} finite weights, and {FEATURES + 2} for each hidden unit"
            raise InvalidInput(expected, value=weights.shape, key="weights")
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def fresh(cls, rng: np.random.Generator, hidden: int = 0) -> Order:
        """Initial order for training: the smallest area first, of the predicted run time and the size."""
        direct = np.zeros(FEATURES)
        direct[PREDICTED] = direct[SIZE] = 1.0
        units = rng.standard_normal((hidden, FEATURES)) / np.sqrt(FEATURES)
        return cls(np.concatenate([units.reshape(-1), np.zeros(2 * hidden), direct]))

    @property
    def history(self) -> bool:
        """Whether run times are predicted from those of earlier jobs of the owner."""
        return bool(self.made.get("history", True))

    def replace(self, weights: Floats) -> Order:
        """The same order with other weights."""
        return Order(weights, self.made)

    def text(self) -> str:
        """The order as JSON: numbers and texts, nothing executable."""
        return json.dumps({"format": FORMAT, "made": self.made, "weights": self.weights.tolist()}, indent=1) + "\n"

    @classmethod
    def parse(cls, text: str, file: str | None = None) -> Order:
        """Parse the output of `text`; anything else is refused."""
        try:
            body = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InvalidInput("an order in JSON", found=str(error), file=file) from error
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            found = body.get("format") if isinstance(body, dict) else type(body).__name__
            raise InvalidInput(f"format {FORMAT!r}", value=found, key="format", file=file)
        weights, made = body.get("weights"), body.get("made", {})
        if not isinstance(weights, list) or not all(type(x) in (int, float) for x in weights):
            raise InvalidInput("a list of numbers", value=type(weights).__name__, key="weights", file=file)
        if not isinstance(made, dict):
            raise InvalidInput("a mapping", value=type(made).__name__, key="made", file=file)
        try:
            return cls(np.array(weights, dtype=np.float64), made)
        except InvalidInput as error:
            raise error.at(file=file) from None

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        part = path.with_name(path.name + ".part")
        part.write_text(self.text(), encoding="utf-8")
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Order:
        """Read a file that `save` wrote; safe for untrusted files."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput("a readable file", found=str(error), file=str(path)) from error
        return cls.parse(text, str(path))


@cache
def _shipped(name: str) -> Order:
    file = resources.files("berth.families.placement.policies") / "orders" / f"{name}.json"
    return Order.parse(file.read_text(encoding="utf-8"), f"{name}.json")


def order_named(file: str) -> Order:
    """An order that comes with berth, or that of a file."""
    return _shipped(SHIPPED[file]) if file in SHIPPED else Order.load(Path(file))
