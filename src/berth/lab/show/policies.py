"""What policies there are, for people and for programs."""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from typing import Any

from berth.errors import BerthError
from berth.families import BUILTIN
from berth.registry import GROUP, policy_names, policy_settings, resolve

__all__ = ["describe_policies"]


def describe_policies() -> list[dict[str, Any]]:
    """Every policy by name: its family, one line about it, settings with defaults, reference and source.

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
    """A default as JSON has it; one that must be given is null."""
    if value is inspect.Parameter.empty:
        return None
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
