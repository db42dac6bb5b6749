"""The names that `berth` itself offers: all are there, importing berth is light, and examples need no inner ones."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import berth

ROOT = Path(__file__).parents[1]
INNER = re.compile(
    r"(?:from|import) berth\.(?:lab|scenario|families|live(?!\.(?:engines|policies|simulation) import))\b"
)


def test_every_name_is_there() -> None:
    found = {name: getattr(berth, name) for name in berth.__all__}
    assert all(value is not None for value in found.values())
    assert dir(berth) == sorted(found)
    for name, module in berth._HOME.items():
        assert found[name] is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match="no attribute 'comapre'"):
        berth.comapre  # noqa: B018


def test_importing_berth_is_light() -> None:
    code = "import berth, sys; print([m for m in sys.modules if m.startswith('berth.') or m in ('numpy', 'polars')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['berth.about']\n"


@pytest.mark.parametrize(
    "page", ["README.md", "docs/start-lab.md", "docs/write-a-policy.md", "docs/sweeps.md", "examples"]
)
def test_examples_import_no_inner_modules(page: str) -> None:
    files = [ROOT / page] if (ROOT / page).is_file() else sorted((ROOT / page).rglob("*.py"))
    assert files
    assert [line for file in files for line in file.read_text("utf-8").splitlines() if INNER.search(line)] == []


def test_a_policy_by_name_is_the_one_that_is_compared() -> None:
    world = berth.load_scenario("small", {"horizon": 20}).build(seed=3, arrivals_known=False)
    alone = berth.simulate(world, berth.make_policy("random-allocation", world.problem, seed=3))
    compared = berth.compare(
        "small", ["random-allocation"], [3], arrivals="hidden", oracles=[], workers=1, overrides={"horizon": 20}
    )
    assert compared.runs("hidden", "random-allocation")[3].reward.tolist() == alone.reward.tolist()
