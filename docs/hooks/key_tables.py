"""Tables of keys, made from the models that read them: `<!-- keys of package.module:Model -->` becomes a table."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

MARK = re.compile(r"^<!-- keys of ([\w.]+):(\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put a table in place of each mark; MkDocs calls this for every page."""
    return MARK.sub(lambda found: table(getattr(importlib.import_module(found[1]), found[2])), markdown)


def table(model: Any) -> str:
    """The keys that a model itself describes: their defaults, what they mean and what they may hold."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for name in model.__annotations__:
        field = model.model_fields.get(name)
        if field is not None and field.description is not None:
            meaning = "<br>".join([field.description, *dict.fromkeys(_forms(field.annotation))])
            lines.append(f"| `{name}` | {_default(field)} | {meaning} |")
    return "\n".join(lines)


def _default(field: Any) -> str:
    if field.is_required() or field.default_factory is not None or field.default in (None, ""):
        return "required" if field.is_required() else ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _forms(kind: Any) -> Iterator[str]:
    """Mappings by their keys and what they are, lists of them, and words that a value may be."""
    if isinstance(kind, type) and hasattr(kind, "model_fields"):
        summary = " ".join((kind.__doc__ or "").split())
        yield f"`{{{', '.join(kind.model_fields)}}}`{': ' if summary else ''}{summary}"
    elif get_origin(kind) is Literal:
        yield ", ".join(f"`{word}`" for word in get_args(kind))
    else:
        prefix = {list: "list of ", dict: "by name, "}.get(get_origin(kind) or kind, "")
        for part in get_args(kind):
            yield from (prefix + form for form in _forms(part))
