"""The page on traces: its example is the one that comes with berth, and it tells of every rule."""

from __future__ import annotations

import re
from pathlib import Path

from berth.traces.formats import load_trace
from berth.traces.rules import RULES
from berth.traces.trace import JOB_COLUMNS, MACHINE_COLUMNS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "traces.md"


def test_the_example_is_read() -> None:
    tables = re.findall(r"```csv\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    files = [ROOT / "examples" / name for name in ("own.csv", "own.machines.csv", "own.outages.csv")]
    assert [file.read_text(encoding="utf-8") for file in files] == tables
    trace = load_trace(files[0], strict=True)
    assert trace.jobs.select("job", "pieces", "needs", "gpu").rows()[:3] == [
        ("train-1", 4, "A100|H100", 1.0),
        ("train-2", 1, "H100", 0.5),
        ("report", 1, None, None),
    ]
    assert [(resource.name, resource.unit) for resource in trace.resources] == [
        ("cpu", "core"),
        ("memory", "GiB"),
        ("gpu", "device"),
    ]
    assert trace.machines["count"].sum() == 29
    assert trace.outages.rows() == [("old", 3600.0, 7200.0), ("old", 9000.0, None)]
    assert set(tables[0].splitlines()[0].split(",")) >= JOB_COLUMNS.keys()


def test_the_page_tells_of_every_column_and_rule() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("| rule |")[2].partition("\n\n")[0]
    told = dict(re.findall(r"^\| (.*?) \| (.*?)(?:: .*)? \|$", table, re.MULTILINE))
    assert {rule.reason: rule.remedy for rule in RULES}.items() <= told.items()
    assert told.keys() - {rule.reason for rule in RULES} == {"no amount of a resource"}
    for column in (*JOB_COLUMNS, *MACHINE_COLUMNS):
        assert f"`{column}`" in text
