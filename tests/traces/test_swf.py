"""Standard Workload Format, on hand-made samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from berth.errors import InvalidInput, UnknownName
from berth.traces.formats import load_trace, open_trace

Sample = Callable[[str], Path]


def test_standard(sample: Sample) -> None:
    reading = open_trace(sample("swf/standard.swf"))
    trace = reading.trace()
    assert trace.source.format == "swf"
    assert trace.source.notes["Note"] == "hand-made"
    assert trace.jobs.rows() == [
        ("1", 0.0, 10.0, 100.0, 200.0, 4, "7", "2", "3", None, None, "done", 1.0, 2048 / 1024**2),
        ("2", 5.0, None, None, 50.0, 2, "7", "2", "3", None, None, "cancelled", 1.0, None),
        ("3", 20.0, 0.0, 30.0, None, 8, "9", None, None, None, None, "failed", 1.0, None),
    ]
    assert trace.machines.rows() == [("node", 4, None, None, 1.0, 2.0, None)]
    assert reading.report.repaired == {"size taken from the processors that it got": 1}


def test_departures_of_metacentrum(sample: Sample) -> None:
    reading = open_trace(sample("swf/metacentrum.swf"))
    trace = reading.trace()
    assert trace.jobs.select("job", "pieces", "cpu", "memory", "needs", "kind").rows() == [
        ("0", 1, 64.0, 64.0, "zewura", "q_1d"),
        ("1", 2, 12.0, 24.0, None, "q_2w"),
        ("2", 3, 1.0, 1.0, None, "q_1d"),  # two kinds of nodes: a piece for each processor
        ("3", 8, 1.0, 1.0, "zegox", "q_1d"),  # 4 on a node, but 8 in all
    ]
    assert reading.report.repaired == {"request for nodes that does not agree with the processors, taken one by one": 1}
    assert "21" in trace.source.notes["fields"]
    assert "bytes" in trace.source.notes["memory"]


def test_machines_beside_a_log(sample: Sample) -> None:
    machines = load_trace(sample("swf/metacentrum.swf")).machines
    assert machines.select("machine", "count", "label", "cpu").rows() == [
        ("zewura", 20, "zewura", 80.0),
        ("zegox", 48, "zegox", 12.0),
    ]
    assert machines["memory"].to_list() == [529426432 / 1024**2, 94035968 / 1024**2]


def test_what_field_10_is(sample: Sample) -> None:
    path = sample("swf/metacentrum.swf")
    standard = load_trace(path, memory="kb-per-processor")
    assert standard.jobs["memory"].to_list()[0] == 68719476736 / 1024**2 * 64
    assert "memory" not in standard.source.notes
    whole = load_trace(sample("swf/standard.swf"), memory="bytes-per-job")
    assert whole.jobs["memory"].to_list()[0] == 2048 / 1024**3 / 4
    with pytest.raises(UnknownName, match="bytes-per-job"):
        load_trace(path, memory="bytes")


def test_a_header_that_makes_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text("; MaxProcs: many\n" + "1 " * 18 + "\n")
    reading = open_trace(path)
    assert len(reading.trace().machines) == 0
    assert dict(reading.report.repaired) == {"header's MaxProcs forgotten, which is no number above 0": 1}


@pytest.mark.parametrize(
    ("text", "processors"), [("2,048", 2048), ("4.0", 4), ("1e2", 100), ("1024 (512 nodes)", 1024)]
)
def test_numbers_of_the_header(tmp_path: Path, text: str, processors: int) -> None:
    path = tmp_path / "log.swf"
    path.write_text(f"\ufeff; MaxProcs: {text}\n" + "1 " * 18 + "\n", encoding="utf-8")
    assert load_trace(path).machines["count"].to_list() == [processors]


@pytest.mark.parametrize(("field", "text"), [(7, "99999999999999999999"), (4, "4.5"), (11, "2.5")])
def test_parts_and_numbers_too_large_to_count_are_named(tmp_path: Path, field: int, text: str) -> None:
    path = tmp_path / "log.swf"
    cells = ["1"] * 18
    cells[field] = text
    path.write_text("1 " * 18 + "\n" + " ".join(cells) + "\n")
    reading = open_trace(path)
    assert len(reading.trace()) == 1
    assert "log.swf:2: " in str(reading.report.examples["no whole number"][0])
    with pytest.raises(InvalidInput, match="expected a whole number"):
        load_trace(path, strict=True)
