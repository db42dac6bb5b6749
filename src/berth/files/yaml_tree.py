"""Parse YAML into plain values with the file and line of every key, for error messages.

Values follow YAML 1.2: `1e-3` is a number, `on` and `no` are texts, `012` is twelve, keys are always texts. The
parser refuses what PyYAML accepts silently: duplicate keys, tags, and aliases (a few hundred bytes can expand to
gigabytes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from berth.errors import InvalidInput

__all__ = ["Key", "Place", "Tree", "key_text", "read_documents", "read_file", "read_text"]

LARGEST_FILE = 4 * 2**20
DEEPEST = 32

Key = tuple[str | int, ...]
"""Path of a value: ("ports", 0, "demand", "gpu") is written `ports[0].demand.gpu`."""

Place = tuple[str | None, int | None]
"""File and line, if known."""

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass
class Tree:
    """Values, and where each was written."""

    value: Any
    places: dict[Key, Place] = field(default_factory=dict)

    def place(self, key: Key) -> Place:
        """Where this key was written, or else the nearest key around it."""
        for end in range(len(key), -1, -1):
            if key[:end] in self.places:
                return self.places[key[:end]]
        return None, None

    def under(self, name: str) -> Tree:
        """The part under one key, empty if the key is absent."""
        return Tree(self.value.get(name), {key[1:]: place for key, place in self.places.items() if key[:1] == (name,)})


def key_text(key: Key) -> str:
    """Write the key in dotted form.

    >>> key_text(("ports", 0, "demand", "gpu"))
    'ports[0].demand.gpu'
    """
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return text.removeprefix(".")


def read_file(path: Path, what: str = "scenario", *, may_be_empty: bool = False) -> Tree:
    """Read the mapping in this file; raise one `InvalidInput` for any problem."""
    try:
        if path.is_dir():
            raise InvalidInput(f"a {what} file", found="a folder", file=path)
        size = path.stat().st_size
        if size <= LARGEST_FILE:
            with path.open("rb") as stream:
                # the size of a pipe or device is unknown
                data = stream.read(LARGEST_FILE + 1)
            size = len(data)
        if size > LARGEST_FILE:
            raise InvalidInput(
                f"a {what} file of at most {LARGEST_FILE / 2**20:g} MiB",
                found=f"one of {size / 2**20:.1f} MiB",
                file=path,
            )
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise InvalidInput(f"a {what} file", found="no such file", file=path) from None
    except UnicodeDecodeError as error:
        raise InvalidInput("text in UTF-8", found=f"something else at byte {error.start}", file=path) from None
    except OSError as error:
        raise InvalidInput(f"a readable {what} file", found=(error.strerror or str(error)).lower(), file=path) from None
    except ValueError:
        # an impossible file name, such as one with a NUL
        raise InvalidInput(f"a {what} file", found="no such file", file=path) from None
    tree = read_text(text, str(path))
    if tree.value is None and may_be_empty:
        tree.value = {}
    elif tree.value is None:
        raise InvalidInput("a mapping (key: value)", found="an empty file", file=path)
    if not isinstance(tree.value, dict):
        shape = "a list" if isinstance(tree.value, list) else repr(tree.value)
        raise InvalidInput("a mapping (key: value)", found=shape, file=path, line=tree.place(())[1])
    return tree


def read_text(text: str, file: str | None = None) -> Tree:
    """Parse the one YAML document in this text.

    >>> read_text("a: 1e-3\\nb: [on, 012]").value
    {'a': 0.001, 'b': ['on', 12]}
    >>> read_text("a: 1\\na: 2", "lab.yaml")
    Traceback (most recent call last):
    berth.errors.InvalidInput: lab.yaml:2: a: got the same key again, expected each key once (it is on line 1)
    """
    return _documents(text, file, several=False)[0]


def read_documents(text: str, file: str | None = None) -> list[Tree]:
    """Parse the YAML documents in this text, without empty ones."""
    return [tree for tree in _documents(text, file, several=True) if tree.value is not None]


def _documents(text: str, file: str | None, several: bool) -> list[Tree]:
    import yaml

    # events rather than PyYAML's own construction: no recursion limit, and a mark for every event
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(file, several)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at column {mark.column + 1}" if mark else ""
        found = f"text that is not YAML{where} ({error.problem or error.context})"
        raise InvalidInput("YAML", found=found, file=file, line=mark.line + 1 if mark else None) from None
    except yaml.YAMLError as error:
        found = f"text that is not YAML ({str(error).splitlines()[0]})"
        raise InvalidInput("YAML", found=found, file=file) from None
    return builder.trees or [Tree(None)]


def _scalar(text: str) -> Any:
    if text.lower() in _WORDS and (text.islower() or text in ("", "~", "True", "False", "Null", "NULL")):
        return _WORDS[text.lower()]
    if text.lower() in _SPECIAL:
        return _SPECIAL[text.lower()]
    if _INT.fullmatch(text):
        # longer than any number here; int() itself refuses thousands of digits
        return int(text) if len(text) < 40 else float(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


class _Builder:
    """Builds one tree per document from YAML events; `_open` is the stack of open collections."""

    def __init__(self, file: str | None, several: bool) -> None:
        self.trees: list[Tree] = []
        self._file, self._several = file, several
        self._open: list[tuple[Key, dict[str, Any] | list[Any]]] = []
        self._pending: str | None = None

    def _refuse(self, event: Any, expected: str, found: str, key: Key = ()) -> InvalidInput:
        return InvalidInput(expected, found=found, key=key_text(key) or None, file=self._file, line=_line(event))

    def take(self, event: Any) -> None:
        import yaml

        if isinstance(event, yaml.DocumentStartEvent):
            if self.trees and not self._several:
                raise self._refuse(event, "one document a file", "a second YAML document (---)")
            self.trees.append(Tree(None))
        elif isinstance(event, yaml.AliasEvent):
            raise self._refuse(event, "the value itself, or `extends`", f"an alias (*{event.anchor})", self._next_key())
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
        elif isinstance(event, yaml.NodeEvent):
            self._node(event)

    def _next_key(self) -> Key:
        if not self._open:
            return ()
        key, parent = self._open[-1]
        if isinstance(parent, list):
            return (*key, len(parent))
        return key if self._pending is None else (*key, self._pending)

    def _node(self, event: Any) -> None:
        import yaml

        if self._open and isinstance(self._open[-1][1], dict) and self._pending is None:
            self._name(event)
            return
        key = self._next_key()
        # core tags such as `!!str 5` are refused too: the settings define the type of each key
        if event.tag is not None and not (isinstance(event, yaml.ScalarEvent) and event.tag == "!"):
            raise self._refuse(event, "a plain value", f"a YAML tag ({event.tag})", key)
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event.value) if event.implicit[0] and event.style in (None, "") else event.value
        else:
            value = {} if isinstance(event, yaml.MappingStartEvent) else []
        if self._open:
            parent = self._open[-1][1]
            if isinstance(parent, list):
                parent.append(value)
            else:
                parent[str(key[-1])] = value
        else:
            self.trees[-1].value = value
        self.trees[-1].places.setdefault(key, (self._file, _line(event)))
        self._pending = None
        if isinstance(value, (dict, list)):
            if len(self._open) >= DEEPEST:
                raise self._refuse(event, f"at most {DEEPEST} levels", "deeper nesting")
            self._open.append((key, value))

    def _name(self, event: Any) -> None:
        """The next key of the innermost mapping."""
        import yaml

        parent, mapping = self._open[-1]
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refuse(event, "a text as key", "a list or mapping as key", parent)
        key = (*parent, event.value)
        if event.value in mapping:
            first = self.trees[-1].places[key][1]
            raise self._refuse(event, f"each key once (it is on line {first})", "the same key again", key)
        self.trees[-1].places[key] = (self._file, _line(event))
        self._pending = event.value
