"""Show the examples in docstrings as code: fence every run of lines that begins with `>>>`."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"(?:^>>> .*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)


class FenceDoctests(Extension):
    """Runs after a docstring was read and before it is rendered."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Put fences around the examples of one docstring."""
        if obj.docstring is not None:
            text = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value)
            obj.docstring.value = text
