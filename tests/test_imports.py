"""Imports beyond the contracts in pyproject.toml."""

from __future__ import annotations

import grimp


def test_no_circle_of_files() -> None:
    # imports inside functions and for types count too. Files that import none of the others are taken away, again and
    # again; what remains is a circle, or imports one.
    graph = grimp.build_graph("berth", cache_dir=None)
    left = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(left) > 300
    while leaves := {name for name, imported in left.items() if not imported & left.keys()}:
        left = {name: imported for name, imported in left.items() if name not in leaves}
    assert not left, f"these import each other, directly or through others: {sorted(left)}"
