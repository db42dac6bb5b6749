"""The notebook in `examples`: every code cell runs, in order, as a notebook runs it."""

from __future__ import annotations

import ast
import json
import sys
import types
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "lab.ipynb"


def run(code: str, space: dict[str, Any]) -> Any:
    """Run a cell; its value is that of a last expression, unless a semicolon ends it."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";") else None
    exec(compile(tree, NOTEBOOK.name, "exec"), space)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), space)


def test_every_cell_of_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("agg")
    main = types.ModuleType("__main__")  # classes of a notebook are of this module
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(NOTEBOOK.parent)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    shown = [run("".join(cell["source"]), vars(main)) for cell in cells if cell["cell_type"] == "code"]
    import matplotlib.pyplot as plt

    assert len(plt.get_fignums()) == 2
    plt.close("all")
    kinds = [type(value).__name__ for value in shown if value is not None]
    assert kinds == ["Comparison", "Picture", "Picture", "DataFrame", "Comparison", "DataFrame", "DataFrame"]
    compared, mine, log = shown[1], shown[5], shown[6]
    assert not compared.failed
    assert not mine.failed
    assert "ogasched" in compared._repr_html_()
    waits = dict(log.select("policy", "mean_wait_seconds").iter_rows())
    assert waits["easy"] < waits["fcfs"]


def test_the_notebook_is_stored_without_outputs() -> None:
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
