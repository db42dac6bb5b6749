"""Policies by name: the built-in ones and those that installed packages offer.

A policy is written `name`, `name:setting=value,setting=value`, or `package.module:Class` for one
that is not registered.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import yaml

from berth.errors import InvalidInput, UnknownName
from berth.policies import BUILTIN

__all__ = ["PolicySpec", "policy_names", "policy_settings", "resolve"]

GROUP = "berth.policies"
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def policy_names() -> dict[str, str]:
    """Every name and where it comes from, `module:Class`; an installed package cannot take a built-in name."""
    return {**_offered(), **BUILTIN}


@cache
def _offered() -> dict[str, str]:
    """What installed packages offer: asked once, since it reads the metadata of every one of them."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def _load(target: str, name: str) -> type[Any]:
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:  # the last two: no or a relative module
        raise InvalidInput("an importable package.module:Class", value=target, key=f"policy {name!r}") from error
    if not (callable(getattr(found, "decide", None)) and callable(getattr(found, "observe", None))):
        raise InvalidInput("a class with decide and observe", value=target, key=f"policy {name!r}")
    return found  # type: ignore[no-any-return]


def resolve(name: str) -> type[Any]:
    """The policy class of this name.

    >>> resolve("fairness").__name__
    'Fairness'
    >>> resolve("farness")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    berth.errors.UnknownName: unknown policy 'farness'; did you mean 'fairness'? (known: ...)
    """
    names = policy_names()
    if name in names:
        return _load(names[name], name)
    if ":" in name:
        return _load(name, name)
    if name == "oracle":
        expected = "a policy; an oracle knows the truth, and every comparison measures against it anyway"
        raise InvalidInput(expected, value=name, key="policy")
    raise UnknownName("policy", name, names)


def policy_settings(cls: type[Any]) -> dict[str, Any]:
    """The settings that a policy class takes, with their defaults."""
    parameters = list(inspect.signature(cls).parameters.values())
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _value(text: str, key: str) -> Any:
    """A setting's value as YAML reads it, except that 1e-3 is a number (to YAML 1.1 it is a word)."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput("a value that YAML can read", value=text, key=key) from error
    return float(text) if isinstance(value, str) and _EXPONENT.fullmatch(text.strip()) else value


def _check_kind(key: str, value: Any, default: Any) -> None:
    """A setting must be of the kind of its default; where that is a word, a number may stand for it."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    for kind, fits, expected in (
        (bool, isinstance(value, bool), "true or false"),
        (int, number and value == int(value), "a whole number"),
        (float, number, "a number"),
        (str, isinstance(value, str) or number, "a word or a number"),
    ):
        if isinstance(default, kind):
            if not fits:
                raise InvalidInput(expected, value=value, key=key)
            return


@dataclass(frozen=True)
class PolicySpec:
    """A policy as written by a person: its name and settings.

    >>> PolicySpec.parse("ogasched:step=0.5,optimistic=true")
    PolicySpec(name='ogasched', settings=(('optimistic', True), ('step', 0.5)))
    >>> PolicySpec.parse("ogasched:stp=1")
    Traceback (most recent call last):
    berth.errors.UnknownName: unknown setting of ogasched 'stp'; did you mean 'step'? (known: ...)
    """

    name: str
    settings: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str) -> PolicySpec:
        """Read `name`, `name:key=value,…` or `package.module:Class[:key=value,…]`."""
        head, separator, tail = text.rpartition(":")
        if not separator or "=" not in tail:
            head, tail = text, ""
        settings: dict[str, Any] = {}
        for part in filter(None, tail.split(",")):
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                raise InvalidInput("setting=value", value=part, key=f"policy {text!r}")
            settings[key.strip()] = _value(value, f"policy {text!r}")
        spec = cls(head, tuple(sorted(settings.items())))  # one spelling: the name decides which luck a policy has
        known = policy_settings(spec.load())
        for key, value in settings.items():
            if key not in known:
                raise UnknownName(f"setting of {head}", key, known)
            _check_kind(f"{head}.{key}", value, known[key])
        return spec

    def load(self) -> type[Any]:
        """The class itself."""
        return resolve(self.name)

    def build(self, problem: Any, rng: Any) -> Any:
        """The policy for this problem; its constructor refuses a problem it cannot serve."""
        return self.load()(problem, rng, **dict(self.settings))

    def __str__(self) -> str:
        tail = ",".join(f"{k}={v}" for k, v in self.settings)
        return f"{self.name}:{tail}" if tail else self.name
