"""The leaderboard: its list, its page, and policies of one's own beside the built-in ones."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from berth.cli import main
from berth.errors import InvalidInput, UnknownName
from berth.families import BUILTIN, FAMILIES
from berth.lab import leaderboard as boards
from berth.lab.leaderboard import (
    BOARDS,
    QUICK_SLOTS,
    Leaderboard,
    leaderboard,
    print_leaderboard,
    render_leaderboard,
)
from berth.lab.run.sweep import load_sweep
from berth.lab.show.tables import stacked
from berth.registry import resolve
from berth.scenario import load_scenario
from tests.lab.policies import Cheat

ROOT = Path(__file__).parents[2]
HERE = "tests.lab.policies"
FAILS, SEEING = f"{HERE}:Fails", f"{HERE}:Seeing"


def policies_of(family: str) -> list[str]:
    """Policies of a board."""
    return load_sweep(BOARDS[family]).policies or []


def small_board(folder: Path) -> Path:
    """A board of one small scenario."""
    text = BOARDS["allocation"].read_text(encoding="utf-8")
    points = "points:\n  - {scenario: small, horizon: 30}\n"
    file = folder / "allocation.yaml"
    file.write_text(re.sub(r"points:\n(  - .*\n)+", points, text), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Leaderboard, Path]:
    """One small board, with policies that misbehave in every way."""
    out = tmp_path_factory.mktemp("board")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boards, "BOARDS", {"allocation": small_board(tmp_path_factory.mktemp("files"))})
        found = leaderboard([Cheat, f"{HERE}:Fails", f"{HERE}:Seeing"], quick=True, out=out, workers=1)
    return found, out


def test_every_builtin_policy_has_its_place() -> None:
    listed = [name for family in BOARDS for name in policies_of(family)]
    assert len(listed) == len({resolve(name) for name in listed})
    assert {resolve(name) for name in listed} == {resolve(name) for name in BUILTIN}


@pytest.mark.parametrize("family", list(BOARDS))
def test_every_scenario_is_of_its_family_and_not_longer_than_it(family: str) -> None:
    board = load_sweep(BOARDS[family])
    assert board.baseline in policies_of(family)
    assert set(policies_of(family)) <= set(FAMILIES[family].policies)
    for point in board.points:
        scenario = load_scenario(point["scenario"])
        assert scenario.family == family
        assert QUICK_SLOTS[family] <= point["horizon"] <= scenario.horizon


def test_it_has_every_policy_or_says_why_not(made: tuple[Leaderboard, Path]) -> None:
    found, _ = made
    (standing,) = found.standings
    own = [f"{HERE}:{name}" for name in ("Cheat", "Fails", "Seeing")]
    for information in ("hidden", "revealed"):
        there = {row.policy for row in standing.shown(information)}
        refused = {item.policy for item in standing.unsupported if item.information == information}
        failed = {policy for policy in own if f"{policy}, seed 0, arrivals {information}" in standing.failed}
        assert there | refused | failed == {*policies_of("allocation"), *own}
        assert not there & (refused | failed)
    assert [(item.information, item.policy) for item in standing.unsupported if item.policy.startswith(HERE)] == [
        ("hidden", f"{HERE}:Seeing")
    ]
    assert list(found.failed) == [f"small, {HERE}:Fails, seed {seed}, arrivals hidden" for seed in (0, 1)]


def test_shares_are_of_the_oracle_and_differences_are_paired(made: tuple[Leaderboard, Path]) -> None:
    found, out = made
    frame = found.frame()
    assert frame.filter(pl.col("policy") == "fairness")["difference"].to_list() == [0.0, 0.0]
    assert frame["share"].to_list() == frame["fraction_of_oracle"].to_list()
    assert frame["share"].max() <= 1 + 1e-6  # type: ignore[operator]
    kept = pl.read_parquet(out / "leaderboard.parquet")
    assert kept.equals(frame)
    assert json.loads((out / "leaderboard.json").read_text(encoding="utf-8")) == found.as_dict()
    assert json.loads((out / "manifest.json").read_text(encoding="utf-8"))["finished"]


def test_the_page_shows_all_of_it(made: tuple[Leaderboard, Path]) -> None:
    found, _ = made
    page = render_leaderboard(found, "berth leaderboard", "a machine")
    assert f"| **`{HERE}:Cheat`** ← † |" in page
    assert "Not here: ogasched-aware needs arrivals revealed before the decision; ogasched-gang needs" in page
    assert f"* {HERE}:Fails, seed 0, arrivals hidden: ValueError: <script>boom</script> second line" in page
    assert "This is the quick version" in page
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in page.splitlines() if line.startswith("|")]
    assert set(widths) == {3, 6}


def test_it_goes_on_where_it_was_and_only_adds_what_is_new(
    made: tuple[Leaderboard, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first, out = made
    monkeypatch.setattr(boards, "BOARDS", {"allocation": small_board(tmp_path)})
    docs = tmp_path / "page.md"
    words = ["leaderboard", "--policy", f"{HERE}:Cheat", "--quick", "--out", str(out), "--docs", str(docs), "-q"]
    assert main([*words, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cells_reused"] > 0
    again = {(row["information"], row["policy"]): row["reward"] for row in told["standings"][0]["summary"]}
    before = {(row.information, row.policy): row.reward.as_dict() for row in first.standings[0].rows if row.reward}
    assert again == {key: value for key, value in before.items() if key[1] not in (FAILS, SEEING)}
    page = docs.read_text(encoding="utf-8")
    assert page == (out / "leaderboard.md").read_text(encoding="utf-8")
    assert f"`berth leaderboard --policy {HERE}:Cheat --quick --docs {docs}`" in page


def test_bad_input_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown family 'alocation'; did you mean 'allocation'"):
        leaderboard(families=["alocation"])

    with pytest.raises(InvalidInput, match=r"policy '.*:Homeless': got family = None, expected a class that says"):
        leaderboard([Homeless], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Homeless:
    """A policy that does not say which family it is of."""

    def decide(self, slot: object) -> object: ...

    def observe(self, outcome: object) -> None: ...


def test_names_are_whole_at_80_columns_and_the_order_is_explained(made: tuple[Leaderboard, Path]) -> None:
    found, _ = made
    heads = ["trace-google-2011-placement", "ogasched-switching", "trace-openb-allocation", "ogasched-default"]
    (standing,) = found.standings
    standings = tuple(replace(standing, scenario=head) for head in heads)
    console = Console(width=80, file=io.StringIO(), color_system=None)
    with console.capture() as shown:
        print_leaderboard(replace(found, standings=standings), console)
    text = shown.get()
    words = set(text.split())
    for head in heads:
        assert set(stacked(head).split()) <= words
    assert max(map(len, text.splitlines())) <= 80
    assert f"{HERE}:Cheat ←" in text
    assert "policies that serve most scenarios first" in " ".join(text.split())
    assert f"**`{HERE}:Cheat`** ←" in render_leaderboard(found, "berth leaderboard", "here")
