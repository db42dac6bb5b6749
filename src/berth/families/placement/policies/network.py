"""The task-ordering network: its weights, and a small file format without executable content."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.kernels.gang_network import GANG_CLUSTER, GANG_TASK
from berth.families.placement.kernels.network import CLUSTER, STEEP, TASK, Net, Scratch
from berth.model import Floats

__all__ = ["FORMAT", "Network", "size_of"]

FORMAT = "berth placement network 1"
GANG_FORMAT = "berth placement network 2"
"""Format of networks that see gangs."""
HEAD_START = (-0.7, -2.0)  # exp of these: half of the launch cost, and a price of about an eighth of a unit
GANG_START = (-1.2, -6.0)  # near the rule: .3 of the launch cost, and hardly a price


def _shapes(hidden: int, looks: int, gangs: bool = False) -> dict[str, tuple[int, ...]]:
    task, cluster = (GANG_TASK, GANG_CLUSTER) if gangs else (TASK, CLUSTER)
    return {
        "task": (hidden, task),
        "cluster": (hidden, cluster),
        "offset": (hidden,),
        "query": (looks, hidden),
        "key": (looks, hidden),
        "own": (hidden, hidden),
        "others": (hidden, hidden),
        "offset2": (hidden,),
        "out": (hidden,),
        "direct": (task,),
        "heads": (2, hidden + cluster + 1),
    }


def size_of(hidden: int, looks: int, gangs: bool = False) -> int:
    """Number of weights of a network."""
    return sum(int(np.prod(shape)) for shape in _shapes(hidden, looks, gangs).values())


@dataclass(frozen=True, eq=False)
class Network:
    """Weights in one vector, (W,); `looks` 0 means no attention (Deep Sets), otherwise the size of keys and queries.

    `seen` (2, G) holds the smallest and largest cluster features of training: inputs are clipped to this range. `made`
    records its origin: settings, seed, version. With `gangs` the network also sees gang size, reach, devices and the
    queue, and `seen` (2, G + F + 2) also holds the range of task features and of both further outputs, in logarithms.

    >>> net = Network.fresh(np.random.default_rng(0), hidden=4)
    >>> again = Network.parse(net.text())
    >>> np.array_equal(net.weights, again.weights)
    True
    """

    weights: Floats
    hidden: int
    looks: int = 0
    seen: Floats | None = None
    made: dict[str, Any] = field(default_factory=dict)
    gangs: bool = False

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        size = size_of(self.hidden, self.looks, self.gangs)
        if weights.shape != (size,) or not np.isfinite(weights).all():
            raise InvalidInput(f"{size} finite weights", value=weights.shape, key="weights")
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)
        if self.seen is not None:
            seen = np.array(self.seen, dtype=np.float64)
            wide = GANG_CLUSTER + GANG_TASK + 2 if self.gangs else CLUSTER
            if seen.shape != (2, wide) or not np.isfinite(seen).all() or (seen[0] > seen[1]).any():
                raise InvalidInput(f"2 rows of {wide} finite numbers, the first below the second", key="seen")
            seen.setflags(write=False)
            object.__setattr__(self, "seen", seen)

    @classmethod
    def fresh(
        cls,
        rng: np.random.Generator,
        hidden: int = 12,
        looks: int = 0,
        gangs: bool = False,
        direct: tuple[float, float, float] | None = None,
    ) -> Network:
        """Initial network for training: its hidden layers have small weights.

        It ranks by value per demand, and with `gangs` by value per demand and work, as the rule does; `direct` are
        other weights of the logarithms of value, work and demand.
        """
        value, work, demand = direct or (1.0, -1.0 if gangs else 0.0, -1.0)
        parts = []
        for name, shape in _shapes(hidden, looks, gangs).items():
            if name == "direct":
                part = np.zeros(shape)
                part[:3] = value, work, demand
            elif name == "heads":
                part = np.zeros(shape)
                part[:, -1] = GANG_START if gangs else HEAD_START
            elif name == "out":
                part = np.zeros(shape)
            else:
                part = rng.standard_normal(shape) / np.sqrt(max(shape[-1], 1))
            parts.append(part.reshape(-1))
        return cls(np.concatenate(parts), hidden, looks, gangs=gangs)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays in the weight vector, in order."""
        return _shapes(self.hidden, self.looks, self.gangs)

    def replace(self, weights: Floats) -> Network:
        """The same network with other weights."""
        return Network(weights, self.hidden, self.looks, self.seen, self.made, self.gangs)

    def net(self) -> Net:
        """Weights in the kernel's form."""
        arrays, at = {}, 0
        line = self.weights.copy()
        for name, shape in self.shapes().items():
            size = int(np.prod(shape))
            arrays[name] = line[at : at + size].reshape(shape)
            at += size
        (_, task), (_, cluster) = self.shapes()["task"], self.shapes()["cluster"]
        low, high = np.full(cluster + task + 2, -np.inf), np.full(cluster + task + 2, np.inf)
        low[-2:], high[-2:] = -2.0 * STEEP, STEEP
        if self.seen is not None:
            wide = self.seen.shape[1]
            low[:wide], high[:wide] = self.seen
        ranges = {
            name: bound[part].copy()
            for part, names in (
                (slice(0, cluster), ("low", "high")),
                (slice(cluster, cluster + task), ("task_low", "task_high")),
                (slice(cluster + task, None), ("head_low", "head_high")),
            )
            for name, bound in zip(names, (low, high), strict=True)
        }
        return Net(**arrays, **ranges)

    def scratch(self, tasks: int) -> Scratch:
        """Scratch arrays for the kernel, for up to this many tasks."""
        return Scratch(
            features=np.zeros((tasks, self.shapes()["task"][1])),
            cluster=np.zeros(self.shapes()["cluster"][1]),
            hidden=np.zeros((tasks, self.hidden)),
            pooled=np.zeros(self.hidden),
            looks=np.zeros((tasks, self.looks)),
            asks=np.zeros(self.looks),
            means=np.zeros(7),
            heads=np.zeros(4),
        )

    def text(self) -> str:
        """The network as JSON: numbers and texts, nothing executable."""
        body = {
            "format": GANG_FORMAT if self.gangs else FORMAT,
            "hidden": self.hidden,
            "looks": self.looks,
            "made": self.made,
        }
        body["seen"] = None if self.seen is None else self.seen.tolist()
        return json.dumps({**body, "weights": self.weights.tolist()}, indent=1) + "\n"

    @classmethod
    def parse(cls, text: str, file: str | None = None) -> Network:
        """Parse the output of `text`; anything else is refused."""
        try:
            body = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InvalidInput("a network in JSON", found=str(error), file=file) from error
        if not isinstance(body, dict) or body.get("format") not in (FORMAT, GANG_FORMAT):
            found = body.get("format") if isinstance(body, dict) else type(body).__name__
            raise InvalidInput(f"format {FORMAT!r}", value=found, key="format", file=file)
        for key in ("hidden", "looks"):
            size = body.get(key)
            if (
                not isinstance(size, int)
                or isinstance(size, bool)
                or not 0 <= size <= 1024
                or (key == "hidden" and not size)
            ):
                raise InvalidInput("a whole number up to 1024", value=size, key=key, file=file)
        gangs = body["format"] == GANG_FORMAT
        weights, made, seen = body.get("weights"), body.get("made", {}), body.get("seen")
        if not isinstance(weights, list) or not all(type(x) in (int, float) for x in weights):
            raise InvalidInput("a list of numbers", value=type(weights).__name__, key="weights", file=file)
        if not isinstance(made, dict):
            raise InvalidInput("a mapping", value=type(made).__name__, key="made", file=file)
        try:
            bounds = None if seen is None else np.array(seen, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput("two rows of numbers", value=seen, key="seen", file=file) from error
        try:
            return cls(np.array(weights, dtype=np.float64), body["hidden"], body["looks"], bounds, made, gangs)
        except InvalidInput as error:
            if error.key == "seen":
                raise error.at(file=file) from None
            expected = f"{size_of(body['hidden'], body['looks'], gangs)} finite weights"
            raise InvalidInput(expected, found=f"{len(weights)} numbers", key="weights", file=file) from error

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        part = path.with_name(path.name + ".part")
        part.write_text(self.text(), encoding="utf-8")
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Network:
        """Read a file that `save` wrote; safe for untrusted files."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput("a readable file", found=str(error), file=str(path)) from error
        return cls.parse(text, str(path))
