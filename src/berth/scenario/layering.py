"""Layers of a scenario: the file it `extends`, the file itself, and overrides by dotted key.

The families' settings mark the keys that a layer replaces as a whole (`Restated`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from berth.errors import InvalidInput, UnknownName, did_you_mean
from berth.families import FAMILIES
from berth.files.yaml_tree import Key, Tree, key_text, read_file
from berth.scenario.catalog import named_file, scenario_names
from berth.scenario.settings import Restated

__all__ = ["find_file", "laid", "overridden", "read_layers"]

OWN = ("name", "title", "description")
"""Keys that describe one scenario and are not inherited through `extends`."""

_PART = re.compile(r"\.?([^.\[\]\s]+)|\[([0-9]+)\]")


def find_file(name: str | Path, folder: Path | None = None) -> Path:
    """Find the file of a scenario by name or path; a relative path starts at `folder`."""
    named = named_file(name) if isinstance(name, str) else None
    if named is not None:
        return named
    path = Path(name) if folder is None else folder / name
    written_as_path = isinstance(name, Path) or len(path.parts) > (1 if folder is None else len(folder.parts) + 1)
    if written_as_path or path.suffix in (".yaml", ".yml", ".json") or (name and _exists(path)):
        return path
    raise UnknownName("scenario", str(name), scenario_names())


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long for a file
        return False


def read_layers(path: Path, above: tuple[Path, ...] = ()) -> Tree:
    """Read this file on top of all files that it extends."""
    tree = read_file(path)
    return with_base(tree, path.parent, (*above, path.resolve()), path)


def with_base(tree: Tree, folder: Path, chain: tuple[Path, ...] = (), file: Path | None = None) -> Tree:
    """Lay the tree on top of the scenario that its key `extends` names."""
    if "extends" not in tree.value:
        return tree
    base = tree.value.pop("extends")
    line = tree.place(("extends",))[1]
    if not isinstance(base, str):
        raise InvalidInput("the name or file of a scenario", value=base, key="extends", file=file, line=line)
    try:
        found = find_file(base, folder)
    except UnknownName as error:
        hint = did_you_mean(base, error.known)
        raise InvalidInput(
            f"the name or file of a scenario{hint}", value=base, key="extends", file=file, line=line
        ) from None
    if found.resolve() in chain:
        circle = [*chain[chain.index(found.resolve()) :], found.resolve()]
        raise InvalidInput(
            "scenarios that do not extend each other",
            found="a cycle " + " → ".join(p.name for p in circle),
            key="extends",
            file=file,
            line=line,
        )
    if not found.is_file():
        raise InvalidInput(
            "the name or file of a scenario", found=f"no such file {base!r}", key="extends", file=file, line=line
        )
    below = read_layers(found, chain)
    for key in OWN:
        below.value.pop(key, None)
        below.places.pop((key,), None)
    return laid(below, tree)


def overridden(tree: Tree, overrides: Mapping[str, Any]) -> Tree:
    """Set values of the tree by dotted key (`ports.count`, `ports[0].demand.gpu`, `ports.train.demand.gpu`)."""
    layer = Tree({})
    for text, value in overrides.items():
        key = _parts(text)
        inner: dict[Any, Any] = layer.value
        for part in key[:-1]:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InvalidInput("a key that no other override holds already", value=text, key="override")
        inner[key[-1]] = _plain(value)
        layer.places[key] = (None, None)
    return laid(tree, layer)


def _parts(text: str) -> Key:
    parts: list[str | int] = []
    at = 0
    while at < len(text) and (match := _PART.match(text, at)):
        parts.append(match[1] if match[1] is not None else int(match[2]))
        at = match.end()
    if not parts or at < len(text) or text.startswith("."):
        raise InvalidInput("a key such as ports.count or ports[0].demand.gpu", value=text, key="override")
    return tuple(parts)


def _plain(value: Any) -> Any:
    """Convert Python values (tuples, NumPy numbers and arrays) to the types of a file."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return str(value) if isinstance(value, Path) else value


def laid(below: Tree, above: Tree) -> Tree:
    """Merge mappings key by key; any other value above replaces the value below."""
    tree = Tree(None, dict(below.places))
    tree.value = _merged((), below.value, above.value, tree.places, above)
    return tree


def _merged(key: Key, below: Any, above: Any, places: dict[Key, Any], layer: Tree) -> Any:
    if key in layer.places:
        places[key] = layer.places[key]
    indexed = isinstance(above, dict) and bool(above) and all(isinstance(part, int) for part in above)
    if isinstance(below, list) and indexed:
        items = list(below)
        for index, value in above.items():
            if index >= len(items):
                raise InvalidInput(f"an index below {len(items)}", value=index, key=key_text((*key, index)))
            items[index] = _merged((*key, index), items[index], value, places, layer)
        return items
    if indexed:
        raise InvalidInput("a list", found="no list to index", key=key_text(key))
    if isinstance(below, list) and isinstance(above, dict) and (index := _by_name(key, below, above)):
        depth = len(key)
        own = {
            (*key, index[str(k[depth])], *k[depth + 1 :]) if len(k) > depth and k[:depth] == key else k: place
            for k, place in layer.places.items()
        }
        above = {index[name]: value for name, value in above.items()}
        return _merged(key, below, above, places, Tree(layer.value, own))
    marks = _marked(key)
    for short in {mark.short for mark in marks if mark.short is not None}:
        below, above = ({short: part} if isinstance(part, str) else part for part in (below, above))
    if not isinstance(above, dict) or (isinstance(below, dict) and any(mark.when(below, above) for mark in marks)):
        for stale in [k for k in places if len(k) > len(key) and k[: len(key)] == key]:
            del places[stale]
        below = {}
    if isinstance(above, dict):
        old = below if isinstance(below, dict) else {}
        return {**old, **{k: _merged((*key, k), old.get(k), v, places, layer) for k, v in above.items()}}
    places.update({k: place for k, place in layer.places.items() if k[: len(key)] == key})
    return above


def _by_name(key: Key, entries: list[Any], layer: Mapping[Any, Any]) -> dict[str, int]:
    """Index of each entry that the layer changes by its `name`; empty if the layer replaces the list."""
    named = {e["name"]: i for i, e in enumerate(entries) if isinstance(e, dict) and isinstance(e.get("name"), str)}
    unknown = [name for name in layer if name not in named]
    if not unknown:
        return {name: named[name] for name in layer}
    inner = layer[unknown[0]]
    if len(unknown) < len(layer) or (isinstance(inner, dict) and did_you_mean(unknown[0], named)):
        expected = f"one of {', '.join(named)}{did_you_mean(unknown[0], named)}"
        raise InvalidInput(expected, found="an unknown name", key=key_text((*key, unknown[0])))
    return {}


@cache
def _marks() -> list[tuple[Key, Restated]]:
    """Keys with a mark in the families' settings; "*" stands for any key of a mapping or index of a list."""
    found: list[tuple[Key, Restated]] = []

    def look(kind: Any, key: Key) -> None:
        if isinstance(kind, Restated):
            found.append((key, kind))
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for name, field in kind.model_fields.items():
                for part in (field.annotation, *field.metadata):
                    look(part, (*key, name))
        for part in get_args(kind):  # parts of a union, list, mapping or annotation
            look(part, (*key, "*") if get_origin(kind) in (dict, list) else key)

    for family in FAMILIES.values():
        look(family.scenario.settings, ())
    return found


def _marked(key: Key) -> list[Restated]:
    return [
        mark
        for place, mark in _marks()
        if len(place) == len(key) and all(own in ("*", part) for own, part in zip(place, key, strict=True))
    ]
