"""Policies of one's own: in one's own directory, in a notebook, and what a notebook is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from berth.errors import InvalidInput, MissingExtra, UnknownName
from berth.lab.compare import Comparison, compare
from berth.lab.show.canvas import Picture
from berth.lab.show.plots import PICTURES, SEEDS_BELOW
from tests.lab.policies import Cheat

ROOT = Path(__file__).parents[2]
SMALL = {"horizon": 20, "cluster.servers": 4}
MINE = """
from berth.families.allocation.policies.baselines import Fairness

class Mine(Fairness):
    def decide(self, slot):
        return super().decide(slot) * 0.9
"""


def python(code: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run code in a folder as an installed program is run: the folder is not where modules are looked for."""
    command = [sys.executable, "-P", "-c", code, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_the_command_finds_policies_in_the_current_directory_also_in_workers(tmp_path: Path) -> None:
    (tmp_path / "my_own_policies.py").write_text(MINE)
    words = "compare small --set horizon=10 --seeds 2 --oracle none --arrivals hidden --workers 2 --quiet"
    policies = ["--policy", "my_own_policies:Mine", "--policy", "fairness", "--out", "out"]
    done = python("import sys; from berth.cli import main; sys.exit(main())", tmp_path, *words.split(), *policies)
    assert done.returncode == 0, done.stderr
    rows = {row["policy"]: row for row in pl.read_parquet(tmp_path / "out" / "summary.parquet").to_dicts()}
    assert rows["my_own_policies:Mine"]["reward"] < rows["fairness"]["reward"]
    assert (tmp_path / "out" / "plots" / "differences-hidden.png").is_file()
    assert 'id="differences-hidden-' in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_class_of_a_notebook_is_compared_in_its_own_process(tmp_path: Path) -> None:
    compared = "berth.compare('small', policies=[Mine, 'fairness'], seeds=2, oracles=[], overrides={'horizon': 8}"
    code = f"{MINE}\nimport berth\nprint([r.policy for r in {compared}).rows])\n"
    for more in ("workers=2", "out='kept'"):
        code += f"try:\n    {compared}, {more})\nexcept berth.BerthError as error:\n    print(error)\n"
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    names, workers, out = done.stdout.splitlines()
    assert names.count("__main__:Mine") == 2
    expected = "expected a class in a module, as mymodule:MyPolicy; this one is known to this process alone"
    assert workers == f"policy '__main__:Mine': got workers=2, {expected}"
    assert out == f"policy '__main__:Mine': got out=kept, {expected}"
    assert list(tmp_path.iterdir()) == []


def test_a_policy_whose_file_was_edited_is_not_run_under_its_old_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "edited_policies.py"
    file.write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)

    def again() -> Comparison:
        return compare("small", ["edited_policies:Mine"], 1, arrivals="hidden", oracles=[], workers=1, overrides=SMALL)

    before = again()
    file.write_text(MINE.replace("0.9", "0.25"))
    with pytest.raises(InvalidInput, match=r"'edited_policies:Mine': got a file that was changed since, .*reload"):
        again()
    os.utime(file, ns=(1, 1))  # so that Python looks at the file again, however soon this is
    del sys.modules["edited_policies"]
    assert again().frame()["reward"].sum() < before.frame()["reward"].sum()


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    policies: list[str | type[Any]] = [Cheat, "fairness", "drf", "random-allocation"]
    return compare("small", policies, 3, "fairness", "both", ["slot"], workers=1, overrides=SMALL)


def test_the_frame_has_paired_differences_with_their_intervals(comparison: Comparison) -> None:
    frame = comparison.frame()
    assert frame.height == 8
    for row in frame.to_dicts():
        ours = comparison.runs(row["information"], row["policy"])
        base = comparison.runs(row["information"], "fairness")
        each = [ours[seed].reward.mean() - base[seed].reward.mean() for seed in range(3)]
        assert row["difference"] == pytest.approx(np.mean(each))
        assert row["difference_low"] <= row["difference"] <= row["difference_high"]
        assert row["regret"] > 0
        assert row["decide_microseconds"] > 0


@pytest.mark.parametrize("arrivals", ["hidden", "revealed"])
def test_the_figure_shows_every_seed_the_mean_and_the_interval(comparison: Comparison, arrivals: str) -> None:
    figure = comparison.figure(arrivals=arrivals)
    (axes,) = figure.axes
    rows = {row.policy: row for row in comparison.rows if row.information == arrivals and row.policy != "fairness"}
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert set(names) == set(rows)
    lines = [(line.get_marker(), *np.asarray(line.get_data(), dtype=np.float64)) for line in axes.lines[:-1]]
    drawn = {(marker, round(y.mean(), 9)): x.tolist() for marker, x, y in lines}
    for place, name in enumerate(names):
        found = rows[name].difference
        assert found is not None
        assert drawn["D", place] == [found.mean]
        assert np.mean(drawn["o", round(place - SEEDS_BELOW, 9)]) == pytest.approx(found.mean)
        assert len(drawn["o", round(place - SEEDS_BELOW, 9)]) == 3
        assert drawn["None", place] == [found.low, found.high]
    low, high = axes.get_xlim()
    assert low < 0 < high
    assert isinstance(figure, Picture)
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_every_picture_can_be_had_by_name(comparison: Comparison) -> None:
    assert all(comparison.figure(name).axes for name in PICTURES)
    with pytest.raises(UnknownName, match="did you mean 'differences'"):
        comparison.figure("diferences")
    with pytest.raises(InvalidInput, match="arrivals: got 'seen', expected hidden or revealed"):
        comparison.figure(arrivals="seen")
    alone = compare("small", ["drf"], 1, "drf", "hidden", [], workers=1, overrides=SMALL)
    with pytest.raises(InvalidInput, match="picture 'differences': got nothing"):
        alone.figure()


def test_every_plot_is_a_figure_without_pyplot(comparison: Comparison, tmp_path: Path) -> None:
    titles = [axes.get_ylabel() for axes in comparison.plot("reward", arrivals="revealed").axes]
    assert titles == ["reward a slot, mean so far"]
    comparison.plot("regret").savefig(tmp_path / "regret.png")
    assert (tmp_path / "regret.png").read_bytes().startswith(b"\x89PNG")
    code = "import berth, sys; berth.compare('small', ['drf'], 2, oracles=[], overrides={'horizon': 8}).plot('reward')"
    done = python(f"{code}; print('matplotlib.pyplot' in sys.modules)", tmp_path)
    assert done.stdout == "False\n", done.stderr


def test_a_comparison_prints_as_a_table_of_80_columns(comparison: Comparison) -> None:
    lines = repr(comparison).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "Arrivals hidden until the decision"
    assert "Arrivals revealed before the decision" in lines
    rewards = {row.policy: f"{row.reward.mean:.4g}" for row in comparison.rows[:4] if row.reward}
    for policy in ("fairness", "drf"):
        (shown, *_) = (line for line in lines if line.startswith(policy))
        assert rewards[policy] in shown
    assert "\x1b" not in repr(comparison)


def test_the_frame_has_plain_columns_also_for_pandas(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = compare("small", ["drf"], 1, "drf", "hidden", [], workers=1, overrides=SMALL).frame()
    assert frame.schema == comparison.frame().schema  # also where no oracle, no second seed and no baseline fill them
    assert set(frame.dtypes) == {pl.String, pl.Int64, pl.Float64}
    given: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=given.update))
    comparison.to_pandas()
    assert list(given) == comparison.frame().columns
    assert given["policy"].tolist() == comparison.frame()["policy"].to_list()
    assert given["reward"].dtype == np.float64
    assert given["violations"].dtype == np.int64
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"to_pandas needs .* pip install 'berth-scheduler\[pandas\]'"):
        comparison.to_pandas()


def test_pandas_reads_the_frame(comparison: Comparison) -> None:
    import pandas

    found = comparison.to_pandas()
    assert isinstance(found, pandas.DataFrame)
    assert found.shape == comparison.frame().shape
    assert found["claimed"].isna().sum() == comparison.frame()["claimed"].null_count() > 0
    assert found.groupby("policy")["reward"].mean()["drf"] > 0


def test_a_notebook_shows_the_tables(comparison: Comparison) -> None:
    shown = comparison._repr_html_()
    assert shown.count("<table>") == 2
    assert all(f"</svg>{name}" in shown for name in ("tests.lab.policies:Cheat", "drf", "fairness"))
    assert "breaks constraints" in shown
    assert "<script" not in shown
    assert "<html" not in shown
