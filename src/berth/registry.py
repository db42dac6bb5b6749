"""Policies by name: built-in ones and those of installed packages.

A policy is written `name`, `name:setting=value,setting=value`, or `package.module:Class` if it is not registered.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

import yaml

from berth.errors import BerthError, InvalidInput, UnknownName, UnsupportedProblem
from berth.families import BUILTIN, FAMILIES, MOVED

__all__ = [
    "PolicySpec",
    "describe_policies",
    "in_family",
    "load",
    "make_policy",
    "offered",
    "policy_names",
    "policy_settings",
    "resolve",
    "written",
]

GROUP = "berth.policies"
Kind = TypeVar("Kind")
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def policy_names() -> dict[str, str]:
    """Every name and its source, `module:Class`; an installed package cannot override a built-in name."""
    return {**offered(GROUP), **BUILTIN}


@cache
def offered(group: str) -> dict[str, str]:
    """Entry points of a group, `module:attribute` by name; cached, because it reads the metadata of every package."""
    return {point.name: point.value for point in entry_points(group=group)}


def load(target: str, what: str, name: str, kind: type[Kind]) -> Kind:
    """Load the record at `module:attribute`, of an engine or a trace format, and check its type."""
    path, _, attribute = target.partition(":")
    found = getattr(_module(path, name, what), attribute, None)
    if not isinstance(found, kind):
        raise InvalidInput(f"one {kind.__name__} at {target}", found=type(found).__name__, key=f"{what} {name!r}")
    return found


def _load(target: str, name: str) -> type[Any]:
    path, _, attribute = target.partition(":")
    module = _module(path, name)
    if not hasattr(module, attribute):
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and hasattr(value, "decide")]
        near = difflib.get_close_matches(attribute, classes, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        file = getattr(module, "__file__", None) or path
        raise InvalidInput(f"a class that {file} has{hint}", value=attribute, key=f"policy {name!r}")
    found = getattr(module, attribute)
    if not (isinstance(found, type) and _answers(found, "decide") and _answers(found, "observe")):
        raise InvalidInput("a class with the methods decide and observe", value=target, key=f"policy {name!r}")
    return found


def _answers(found: type[Any], method: str) -> bool:
    return callable(getattr(found, method, None))


def _module(path: str, name: str, what: str = "policy") -> Any:
    """Import the module of a policy; an error in its code names the policy."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or f"{path}.".startswith(f"{error.name}."):
            expected = "a module in this directory, or an installed one, as package.module:Class"
            raise InvalidInput(expected, found=f"no module {path!r}", key=f"{what} {name!r}") from error
        raise InvalidInput(_IMPORTABLE, found=_told(path, error), key=f"{what} {name!r}") from error
    except (ValueError, TypeError) as error:  # no name of a module, or a relative one
        raise InvalidInput("package.module:Class", value=name, key=what) from error
    except Exception as error:
        raise InvalidInput(_IMPORTABLE, found=_told(path, error), key=f"{what} {name!r}") from error


_IMPORTABLE = "a module that can be imported"


def _told(path: str, error: Exception) -> str:
    return f"{path}, which raises {type(error).__name__}: {' '.join(str(error).split())}"


def written(policy: str | type[Any]) -> str:
    """Name of a policy as a user writes it: registered name, or module and class.

    >>> from berth.families.allocation.policies.baselines import Fairness
    >>> written(Fairness), written("fairness")
    ('fairness', 'fairness')
    """
    if isinstance(policy, str):
        return policy
    if not isinstance(policy, type):
        expected = "a class, its name, or module:Class:setting=value as a text"
        raise InvalidInput(expected, value=policy, key="policies")
    place = f"{policy.__module__}:{policy.__qualname__}"
    name = next((name for name, target in policy_names().items() if target == place), place)
    if "." in policy.__qualname__ or resolve(name) is not policy:
        expected = "a class at the top level of its module, by its own name (reload a module that has changed)"
        raise InvalidInput(expected, value=place, key="policies")
    return name


def resolve(name: str) -> type[Any]:
    """Policy class of this name.

    >>> resolve("fairness").__name__
    'Fairness'
    >>> resolve("farness")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    berth.errors.UnknownName: unknown policy 'farness'; did you mean 'fairness'?
    """
    names = policy_names()
    if name in names:
        return _load(names[name], name)
    if ":" in name:
        return _load(name, name)
    if name == "oracle":
        expected = "a policy; an oracle knows the truth, and every comparison measures against it anyway"
        raise InvalidInput(expected, value=name, key="policy")
    if name in MOVED:
        raise InvalidInput("a policy of this version", found=f"{name}, {MOVED[name]}", key="policy")
    raise UnknownName("policy", name, names)


def in_family(error: UnknownName, family: str, more: Iterable[str] = ()) -> UnknownName:
    """The error for an unknown policy where one of this family, or one of `more`, is wanted: it suggests those first.

    >>> print(in_family(UnknownName("policy", "rand", ["random-allocation", "random-selection"]), "selection"))
    unknown policy 'rand'; did you mean 'random-selection'?
    """
    if error.what != "policy":
        return error
    others = {name: f.name for f in FAMILIES.values() if f.name != family for name in f.policies}
    known = [*more, *(name for name in policy_names() if name not in others)]
    return UnknownName("policy", error.name, known, others)


def policy_settings(cls: type[Any]) -> dict[str, Any]:
    """Settings that a policy class takes, with their defaults."""
    parameters = list(inspect.signature(cls).parameters.values())
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _value(text: str, key: str) -> Any:
    """Parse a setting's value as YAML, except that 1e-3 is a number (a text in YAML 1.1)."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput("a value that YAML can read", value=text, key=key) from error
    return float(text) if isinstance(value, str) and _EXPONENT.fullmatch(text.strip()) else value


def _check_kind(key: str, value: Any, default: Any) -> None:
    """Check that a setting has the type of its default; a number may replace a text."""
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
    """A policy as a user writes it: name and settings.

    >>> PolicySpec.parse("ogasched:step=0.5,optimistic=true")
    PolicySpec(name='ogasched', settings=(('optimistic', True), ('step', 0.5)))
    >>> PolicySpec.parse("ogasched:stp=1")
    Traceback (most recent call last):
    berth.errors.UnknownName: unknown setting of ogasched 'stp'; did you mean 'step'?
    """

    name: str
    settings: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str) -> PolicySpec:
        """Parse `name`, `name:key=value,…` or `package.module:Class[:key=value,…]`."""
        head, separator, tail = text.rpartition(":")
        if not separator or "=" not in tail:
            head, tail = text, ""
        settings: dict[str, Any] = {}
        for part in filter(None, tail.split(",")):
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                raise InvalidInput("setting=value", value=part, key=f"policy {text!r}")
            settings[key.strip()] = _value(value, f"policy {text!r}")
        spec = cls(head, tuple(sorted(settings.items())))  # one spelling: the text seeds the policy's random stream
        known = policy_settings(spec.load())
        for key, value in settings.items():
            if key not in known:
                raise UnknownName(f"setting of {head}", key, known)
            _check_kind(f"{head}.{key}", value, known[key])
        return spec

    def load(self) -> type[Any]:
        """Policy class."""
        return resolve(self.name)

    def build(self, problem: Any, rng: Any = None) -> Any:
        """Build the policy for this problem; its constructor refuses a problem it cannot serve.

        Without `rng`, the policy gets the random stream of seed 0.
        """
        cls = self.load()
        theirs, ours = getattr(cls, "family", None), getattr(problem, "family", None)
        if theirs in FAMILIES and ours in FAMILIES and theirs != ours:
            raise UnsupportedProblem(f"{self} is of the {theirs} family, and the problem of the {ours} family")
        if rng is None:
            from berth.random import stream  # here: shell completion lists names and should not load NumPy

            rng = stream(0, "policy", str(self))
        return cls(problem, rng, **dict(self.settings))

    def __str__(self) -> str:
        tail = ",".join(f"{k}={v}" for k, v in self.settings)
        return f"{self.name}:{tail}" if tail else self.name


def make_policy(policy: str | type[Any], problem: Any, seed: int = 0) -> Any:
    """Build a policy for a problem, as `berth.compare` runs it under this seed.

    `policy` is a name with its settings, "module:Class", or the class itself.

    >>> from berth.testing import example_problem
    >>> type(make_policy("fairness", example_problem())).__name__
    'Fairness'
    """
    from berth.random import stream  # here: shell completion lists names and should not load NumPy

    spec = PolicySpec.parse(written(policy))
    return spec.build(problem, stream(seed, "policy", str(spec)))


def describe_policies() -> list[dict[str, Any]]:
    """List every policy: name, family, one-line summary, settings with defaults, reference and source.

    A policy of an installed package that cannot be imported is listed with the reason as its summary.

    >>> [item["source"] for item in describe_policies() if item["name"] == "fairness"]
    ['builtin']
    """
    packages = {p.name: p.dist.name if p.dist else p.value for p in entry_points(group=GROUP)}
    listed = []
    for name, target in policy_names().items():
        item: dict[str, Any] = {
            "name": name,
            "family": None,
            "summary": "",
            "settings": {},
            "reference": None,
            "source": "builtin" if name in BUILTIN else packages.get(name, target),
            "class": target,
        }
        try:
            found = resolve(name)
        except BerthError as error:
            item["summary"] = f"cannot be loaded: {error}"
        else:
            item["family"] = getattr(found, "family", None)
            item["summary"] = (inspect.getdoc(found) or "").partition("\n\n")[0].replace("\n", " ")
            item["settings"] = {key: _plain(value) for key, value in policy_settings(found).items()}
            item["reference"] = getattr(found, "reference", None)
        listed.append(item)
    return listed


def _plain(value: Any) -> Any:
    """Convert a default to JSON; a required setting is null."""
    if value is inspect.Parameter.empty:
        return None
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
