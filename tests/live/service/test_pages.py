"""The pages in a real browser, on a real service: they show what the API tells, everywhere and whatever happens.

Pictures of them are left in test-artefacts/.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.chromium import QUIET, browser
from tests.live.service.live import Live, serving

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

ARTEFACTS = Path(__file__).parents[3] / "test-artefacts"
PAGES = {
    "cluster": "#/",
    "queue": "#/queue",
    "history": "#/history",
    "learned": "#/learned",
    "decisions": "#/decisions",
}
HOSTILE = '<img src=x onerror="document.title=1"><b>bold</b>'
TYPES = {
    "train": {"cpu": 4, "memory": "16Gi", "gpu": 1},
    "etl": {"cpu": 4, "memory": "8Gi"},
    "render": {"cpu": 8, "memory": "4Gi"},
}


def some_jobs(count: int) -> list[dict[str, Any]]:
    draw = random.Random(7)
    return [
        {
            "name": f"{kind}-{i}",
            "type": kind,
            "tasks": draw.randint(1, 4),
            "resources": TYPES[kind],
            "work": draw.randint(60, 600),
            "team": draw.choice(["vision", "language"]),
        }
        for i in range(count)
        for kind in [draw.choice(sorted(TYPES))]
    ]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A busy service: jobs of several types, one that cannot fit, a drained server, a candidate in the shadow."""
    with serving(tmp_path_factory.mktemp("live"), "--faster", "60", "--policy", "best-fit") as found:
        found.ask("PUT", "/v1/shadow", {"policy": "first-fit"})
        found.ask("POST", "/v1/servers/cpu-3/drain")
        found.ask("POST", "/v1/jobs", some_jobs(80))
        hostile = {"needs": {HOSTILE: HOSTILE}, "command": ["echo", HOSTILE], "environment": {"X": HOSTILE}}
        found.ask("POST", "/v1/jobs", {"name": "too-big", "type": "train", "tasks": 64, "resources": {"gpu": 4}})
        found.ask("POST", "/v1/jobs", {"name": "hostile", "resources": {"cpu": 1}, "work": 60, **hostile})
        found.wait_for("/v1/learned", lambda lines: len({line["type"] for line in lines}) == 3)
        found.wait_for("/v1/history", lambda steps: len(steps) > 2)
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser."""
    where = browser()
    if where is None:
        pytest.skip("Chromium is not installed: python3 scripts/chromium.py install")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=where, args=list(QUIET))
        yield running
        running.close()


@contextmanager
def visit(chromium: Any, *, width: int = 1280, scheme: str = "light", quiet: bool = True) -> Iterator[Any]:
    """A page of its own; with `quiet`, whatever the browser complains about is an error."""
    context = chromium.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    context.set_default_timeout(240_000.0)
    page = context.new_page()
    complaints: list[str] = []
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        yield page
    finally:
        context.close()
    assert not quiet or not complaints


def show(page: Any, live: Live, place: str, name: str | None = None) -> None:
    page.goto(f"{live.url}/{place}")
    drawn = place.removeprefix("#/").split("/")[0] or "cluster"
    page.wait_for_selector(f'body[data-page="{drawn}"] h1')
    if name is not None:
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)


def words(page: Any) -> str:
    return str(page.inner_text("main"))


def rows(page: Any) -> list[list[str]]:
    script = "all => all.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    return page.eval_on_selector_all("main tbody tr", script)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("dark", 390),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("light", 1280), ("dark", 1280), ("light", 390))),
    ],
)
def test_every_page_in_every_light_and_on_a_phone(chromium: Any, live: Live, scheme: str, width: int) -> None:
    with visit(chromium, width=width, scheme=scheme) as page:
        for name, place in {**PAGES, "job": "#/job/too-big", "hostile": "#/job/hostile"}.items():
            show(page, live, place, f"{name}-{scheme}-{width}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            light = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", light)[:3])) > 384) == (scheme == "light")


def test_the_cluster_is_shown_as_it_is(chromium: Any, live: Live) -> None:
    with visit(chromium) as page:
        show(page, live, "#/")
        text = words(page)
        for server in live.ask("GET", "/v1/servers"):
            assert server["name"] in text
        drained = page.locator(".server.drained")
        assert drained.count() == 1
        assert "cpu-3" in drained.inner_text()
        assert "best-fit" in text
        who = {(row[0], row[1]) for row in rows(page)}
        assert who >= {("team", "vision"), ("team", "language"), ("user", "local")}
        held = page.eval_on_selector_all(".server .holders a", "all => all.map(one => one.innerText)")
        known = {job["id"] for job in live.ask("GET", "/v1/jobs?limit=1000")["jobs"]}
        assert held
        assert set(held) <= known
        widths = page.eval_on_selector_all(".bar > span", "all => all.map(one => one.style.width)")
        assert all(width.endswith("%") for width in widths)


def test_the_queue_says_who_waits_and_why(chromium: Any, live: Live) -> None:
    with visit(chromium) as page:
        show(page, live, "#/queue")
        found = {row[1]: row[2] for row in rows(page)}
        assert found["too-big"] == "it would not fit even if nothing ran"
        assert all(found.values())
        page.click("text=too-big")
        page.wait_for_selector('body[data-page="job"] h1')
        assert "too-big" in words(page)


def test_a_job_is_explained(chromium: Any, live: Live) -> None:
    explained = live.ask("GET", "/v1/jobs/too-big/explain")
    with visit(chromium) as page:
        page.route("**/explain", lambda route: route.fulfill(json=explained))  # the cluster goes on meanwhile
        show(page, live, "#/job/too-big")
        why = explained["why"]
        text = words(page)
        for said in (*why["blocks"], *(step for change in why["changes"] for step in change["steps"])):
            assert said in text
        for group in why["servers"]:
            assert group["names"][0] in text
    with visit(chromium, quiet=False) as page:  # the browser notes answers that are no success
        page.goto(f"{live.url}/#/job/nobody")
        page.wait_for_selector("text=was never submitted")


def test_history_draws_gain_and_regret(chromium: Any, live: Live) -> None:
    with visit(chromium) as page:
        show(page, live, "#/history")
        assert page.locator(".charts svg").count() == 6
        text = words(page)
        assert "first-fit, the candidate" in text
        assert "in-order-best-fit, the fallback" in text
        assert page.locator("svg.interval").count() == 4


def test_learned_and_decisions_are_those_of_the_api(chromium: Any, live: Live) -> None:
    with visit(chromium) as page:
        show(page, live, "#/learned")
        shown = {(row[0], row[1]) for row in rows(page)}
        told = live.ask("GET", "/v1/learned")
        assert page.locator(".charts .card").count() == len({line["type"] for line in told})
        assert {server for server, _ in shown} <= {line["server"] for line in told}
        page.click("text=Replay the last day")
        page.wait_for_selector("#saved:has-text('task-hours')", timeout=240_000)
        assert "that is what best-fit has saved" in words(page)
        show(page, live, "#/decisions")
        numbers = {str(one["number"]) for one in live.ask("GET", "/v1/decisions?limit=1000")}
        first = [row[0] for row in rows(page)]
        assert first
        assert set(first) <= numbers
        assert [int(one) for one in first] == sorted(map(int, first), reverse=True)


def test_what_people_write_is_text(chromium: Any, live: Live) -> None:
    with visit(chromium) as page:
        show(page, live, "#/job/hostile")
        assert HOSTILE in words(page)
        for place in ("#/queue", "#/"):
            show(page, live, place)
        assert page.locator("main img, main b").count() == 0
        assert page.title() == "berth"
    with visit(chromium, quiet=False) as page:
        page.goto(f"{live.url}/#/job/%3Cimg%20src=x%3E")
        page.wait_for_selector("text=This page cannot be shown")
        assert page.locator("main img").count() == 0


def test_no_page_may_run_what_it_was_not_given(chromium: Any, live: Live) -> None:
    with visit(chromium, quiet=False) as page:
        show(page, live, "#/")
        page.evaluate(
            """() => { window.broken = [];
            document.addEventListener('securitypolicyviolation', found => window.broken.push(found.violatedDirective));
            const made = document.createElement('script'); made.textContent = 'window.ran = 1';
            document.body.append(made); }"""
        )
        page.wait_for_function("window.broken.length > 0")
        assert page.evaluate("window.ran") is None


def test_the_theme_can_be_turned_and_is_remembered(chromium: Any, live: Live) -> None:
    with visit(chromium) as page:
        show(page, live, "#/")
        script = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(script)
        page.click("#theme")
        after = page.evaluate(script)
        assert after != before
        page.reload()
        page.wait_for_selector("h1")
        assert page.evaluate(script) == after


def test_many_servers_are_shown_compactly(chromium: Any, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("servers:\n- {name: n, count: 200, capacity: {cpu: 32, memory: 128Gi}}\n", encoding="utf-8")
    with serving(tmp_path, "--engine", f"simulated:{cluster}") as live:
        live.ask("POST", "/v1/servers/n-7/drain")
        live.ask("POST", "/v1/jobs", [{"tasks": 8, "resources": {"cpu": 8}, "work": 9000}] * 40)
        live.wait_for("/v1/jobs?phase=running&limit=1000", lambda found: len(found["jobs"]) == 40)
        for width in (1280, 390):
            with visit(chromium, width=width) as page:
                show(page, live, "#/", f"many-{width}")
                assert page.locator(".cell").count() == 200
                assert page.locator(".cell.drained").count() == 1
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                box = page.locator(".servers.many").bounding_box()
                assert box["height"] < 844


def test_a_token_lets_in_and_a_wrong_one_is_told(chromium: Any, tmp_path: Path) -> None:
    from berth.live.service.store import Store, Token
    from berth.live.service.tokens import digest, new_secret

    secret = new_secret()
    store = Store(str(tmp_path / "berth.db"))
    store.add_token(Token("eve", digest(secret), "read", "eve", 0.0))
    store.close()
    with serving(tmp_path) as live, visit(chromium, quiet=False) as page:
        page.goto(f"{live.url}/#/queue")
        page.wait_for_selector("form input")
        page.fill("input[name=token]", "berth_wrong")
        page.click("text=Enter")
        page.wait_for_selector("text=Unknown or revoked token")
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTEFACTS / "login.png")
        page.fill("input[name=token]", secret)
        page.click("text=Enter")
        page.wait_for_selector("text=0 jobs wait")
        page.reload()
        page.wait_for_selector("text=0 jobs wait")
        assert page.locator("form").count() == 0


def test_a_service_that_goes_away_is_told_and_found_again(chromium: Any, tmp_path: Path) -> None:
    with visit(chromium, quiet=False) as page:
        with serving(tmp_path) as live:
            show(page, live, "#/")
            port = live.port
        page.wait_for_selector("text=the service does not answer")
        assert "cpu-0" in words(page)
        page.screenshot(path=ARTEFACTS / "away.png")
        with serving(tmp_path, port=port):
            page.wait_for_selector("#state:empty", state="attached", timeout=240_000)
            assert "cpu-0" in words(page)
