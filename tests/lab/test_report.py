from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from berth.families import BUILTIN, FAMILIES
from berth.lab.compare import compare
from berth.lab.run.results import Comparison
from berth.lab.show.canvas import finish, line_looks, new_figure
from berth.lab.show.page import DASHBOARD, TEMPLATES, environment
from berth.lab.show.plots import TITLES, palette
from berth.lab.show.words import verdict
from berth.scenario import load_scenario
from scripts.chromium import QUIET, browser

HERE = "tests.lab.policies"
TITLE = '<img src=x onerror="alert(1)"> & friends'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, str]:
    """A comparison with everything in it that a report may have to tell."""
    out = tmp_path_factory.mktemp("report")
    scenario = load_scenario(
        "small", {"horizon": 20, "cluster.servers": 4, "title": TITLE, "description": "one <b>\n\ntwo"}
    )
    comparison = compare(
        scenario,
        ["fairness", "drf", f"{HERE}:Cheat", f"{HERE}:Fails", f"{HERE}:Seeing"],
        2,
        "fairness",
        "both",
        ["stationary", "slot"],
        out,
        workers=1,
    )
    return comparison, (out / "report.html").read_text(encoding="utf-8")


class Links(HTMLParser):
    """Everything that a browser would load or go to, and every name."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for key, value in attrs if key in ("src", "href", "xlink:href", "srcset", "data")]
        self.names += [value or "" for key, value in attrs if key == "id"]


def test_the_page_needs_nothing_else(made: tuple[Comparison, str]) -> None:
    page = Links()
    page.feed(made[1])
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not page.tags & {"link", "iframe", "img", "object", "embed"}
    assert "@import" not in made[1]
    assert not re.search(r"url\((?!#)", made[1])
    assert len(page.names) == len(set(page.names))
    named = {link[1:] for link in page.links if link.startswith("#")}
    assert named <= set(page.names)


def test_whatever_people_write_is_escaped(made: tuple[Comparison, str]) -> None:
    assert "<img" not in made[1]
    assert "&lt;img src=x onerror=&#34;alert(1)&#34;&gt; &amp; friends" in made[1]
    assert "<p>one &lt;b&gt;</p><p>two</p>" in made[1]
    assert "&lt;script&gt;boom&lt;/script&gt;" in made[1]


def test_the_page_tells_all(made: tuple[Comparison, str]) -> None:
    comparison, page = made
    for words in (
        "Arrivals hidden until the decision",
        "Arrivals revealed before the decision",
        "Decisions that broke constraints",
        "Claimed is not reward.",
        "Not in this setting",
        "berth compare",
        "<dt>Seeds</dt><dd>0, 1</dd>",
        "All settings",
        "color-scheme: light dark",
        "@media print",
        "viewport",
        *TITLES.values(),
    ):
        assert words in page, words
    assert page.index('id="hidden"') < page.index('id="revealed"') < page.index('id="broken"')
    assert comparison.version in page


def test_pictures(made: tuple[Comparison, str]) -> None:
    comparison, _ = made
    assert comparison.out is not None
    found = {path.name for path in (Path(comparison.out) / "plots").iterdir()}
    assert found == {f"{name}-{i}.{kind}" for name in TITLES for i in ("hidden", "revealed") for kind in ("png", "svg")}
    for name in found:
        data = (Path(comparison.out) / "plots" / name).read_bytes()
        assert data.startswith(b"\x89PNG") if name.endswith("png") else b"<svg" in data
    looks = palette(comparison)
    assert len({(look["color"], str(look["linestyle"])) for look in looks.values()}) == len(comparison.policies)
    for port in comparison.ports:
        assert f">{port}<" in (Path(comparison.out) / "plots" / "allocation-hidden.svg").read_text(encoding="utf-8")


def test_a_policy_has_one_colour_in_tables_and_plots(made: tuple[Comparison, str]) -> None:
    comparison, page = made
    assert comparison.out is not None
    chip = environment().get_template("parts.html").module.chip  # type: ignore[attr-defined]
    for row in comparison.rows:
        look = palette(comparison)[row.policy]
        assert page.count(f"<td>{chip(look)}{row.policy}") >= 2
        for name in ("average-reward", "regret", "gain-overhead"):
            plot = Path(comparison.out) / "plots" / f"{name}-{row.information}.svg"
            assert look["color"].lower() in plot.read_text(encoding="utf-8")
    looks = line_looks([str(number) for number in range(32)])
    assert len({str(look) for look in looks.values()}) == 32


def test_a_policy_has_the_same_colour_in_every_report() -> None:
    alone = {name: line_looks([name])[name] for name in (*BUILTIN, "mine:My")}
    for family in FAMILIES.values():
        names = list(family.policies)
        together = line_looks(names)
        assert all(together[name] == alone[name] for name in names)
        assert len({str(look) for look in together.values()}) == len(names)
    assert line_looks(["drf", "mine:My"]) == {name: alone[name] for name in ("drf", "mine:My")}
    assert line_looks(["drf", "fairness"], ["mine:My"])["drf"] == alone["drf"]


def test_curves_that_coincide_stay_visible() -> None:
    figure, grid = new_figure()
    axes = grid[0][0]
    x = np.arange(100.0)
    for name, y in {"one": x, "same": x + 0.01, "other": 2 * x}.items():
        axes.plot(x, y, label=name)
    finish(figure, axes)
    assert axes.get_legend_handles_labels()[1] == ["one", "same (coincides with one)", "other"]
    one, same, other = axes.get_lines()
    assert one.get_linewidth() > same.get_linewidth() == other.get_linewidth()


def test_the_dashboard_defines_every_colour() -> None:
    style = TEMPLATES.with_name("report.css").read_text(encoding="utf-8")
    given = set(re.findall(r"(--[\w-]+):", DASHBOARD.read_text(encoding="utf-8")))
    assert set(re.findall(r"var\((--[\w-]+)\)", style)) | {"--ink", "--line"} <= given


def test_tables_sort_in_a_browser(made: tuple[Comparison, str]) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    where = browser()
    if where is None:
        pytest.skip("Chromium is not installed: python3 scripts/chromium.py install")
    comparison, _ = made
    rows = [row for row in comparison.rows if row.information == "hidden"]
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=where, args=list(QUIET))
        page = running.new_page(viewport={"width": 390, "height": 844})
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((Path(str(comparison.out)) / "report.html").resolve().as_uri())
        table = page.locator("table").first

        def rewards() -> list[float]:
            texts = table.locator("tbody td:nth-child(2)").all_inner_texts()
            return [float(text.split()[0].replace(",", "").replace("−", "-")) for text in texts]

        def names() -> list[str]:
            return [text.split()[0] for text in table.locator("tbody td:nth-child(1)").all_inner_texts()]

        head = table.locator("th").nth(1)
        head.locator("button").click()
        assert rewards() == sorted(rewards(), reverse=True)
        head.locator("button").click()
        assert rewards() == sorted(rewards())
        assert head.get_attribute("aria-sort") == "ascending"
        table.locator("th").nth(2).locator("button").click()
        # the baseline and the oracles have no number in this column
        assert len(rows) > 1
        assert set(names()[len(rows) - 1 :]) >= {comparison.baseline}
        assert head.get_attribute("aria-sort") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert not complaints
        running.close()


def test_the_verdict(made: tuple[Comparison, str]) -> None:
    said = verdict(made[0])
    assert said[0].startswith("With arrivals hidden, ")
    assert said[1].startswith("With arrivals revealed, ")
    assert any("broke constraints in" in line and "it earned" in line for line in said)
    assert said[-1] == "2 cells failed and are missing from all numbers."
    clean = compare("small", ["fairness", "drf"], 1, oracles=[], workers=1, overrides={"horizon": 10})
    assert "No decision broke a constraint." in verdict(clean)
    assert any("one seed: no interval" in line or "the baseline" in line for line in verdict(clean))
