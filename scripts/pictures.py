"""Make the pictures of the README and of the home page.

python -m scripts.pictures comparison   docs/images/comparison.png, a plot of the comparison that `berth demo` runs
python -m scripts.pictures dashboard    docs/images/dashboard.png, the first page of a busy service, in Chromium
python -m scripts.pictures              both
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import berth
from scripts.chromium import QUIET, browser
from tests.live.service.live import serving

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TYPES = {
    "train": ({"cpu": 4, "memory": "16Gi", "gpu": 1}, "2h"),
    "etl": ({"cpu": 4, "memory": "8Gi"}, "2h"),
    "render": ({"cpu": 8, "memory": "4Gi"}, "3h"),
}
WIDTH, HEIGHT = 1280, 700


def jobs(count: int) -> list[dict[str, Any]]:
    """Gangs of one to four tasks, of three types and two teams."""
    draw = random.Random(7)
    return [
        {
            "name": f"{kind}-{i}",
            "type": kind,
            "tasks": draw.randint(1, 4),
            "resources": TYPES[kind][0],
            "work": TYPES[kind][1],
            "team": draw.choice(["vision", "language"]),
        }
        for i in range(count)
        for kind in [draw.choice(sorted(TYPES))]
    ]


def comparison() -> None:
    """Run the comparison of `berth demo` with hidden arrivals, and keep its plot of regret."""
    with tempfile.TemporaryDirectory() as folder:
        berth.compare("demo", arrivals="hidden", out=Path(folder))
        shutil.copy(Path(folder) / "plots" / "regret-hidden.png", IMAGES / "comparison.png")


def dashboard() -> None:
    """Start a service, submit jobs, and photograph its first page once all types of job have been learned."""
    from playwright.sync_api import sync_playwright

    program = browser() or sys.exit("pictures: Chromium is not installed (python3 scripts/chromium.py install)")
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), "--faster", "600", "--policy", "completion") as live,
        sync_playwright() as started,
    ):
        live.ask("POST", "/v1/jobs", jobs(120))
        live.wait_for("/v1/learned", lambda lines: len({line["type"] for line in lines if line["runs"]}) == len(TYPES))
        live.wait_for("/v1/history", lambda steps: len(steps) > 20)
        chromium = started.chromium.launch(executable_path=program, args=list(QUIET))
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(f"{live.url}/#/")
        page.wait_for_selector('body[data-page="cluster"] h1')
        page.screenshot(path=IMAGES / "dashboard.png")
        chromium.close()


def main() -> None:
    makers = {"comparison": comparison, "dashboard": dashboard}
    wanted = sys.argv[1:] or list(makers)
    if not makers.keys() >= set(wanted):
        sys.exit(__doc__)
    for name in wanted:
        makers[name]()
        print(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
