"""Tables of measured training speeds."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from berth.errors import InvalidInput
from berth.traces.throughputs import GAVEL, read_gavel, read_sia

SIA = (
    "application,gpu,table,placement,nodes,replicas,local_batch_size,step_seconds,sync_seconds\n"
    "bert,rtx,placements,1,,,4,0.5,0.1\nbert,rtx,placements,1,,,8,0.8,0.1\nbert,dgx-ext,placements,1,,,8,0.4,0.1\n"
    "bert,dgx-ext,placements,2,,,8,0.5,0.1\nbert,dgx-ext,placements,11,,,8,1.0,0.1\nbert,rtx,placements,11,,,8,2.0,0.1\n"
    "bert,rtx,scalability,,1,1,8,0.1,0.1\nbert,quad,placements,1,,,8,0.1,0.1\n"
)


def test_gavel_is_relative_to_the_v100() -> None:
    table = read_gavel()
    assert len(table.gpus) == 83
    assert table.models == ("k80", "p100", "v100")
    assert all(table.speed[type_, "v100", False] == 1.0 for type_ in table.gpus)
    assert table.speed["LM/b10/g4", "v100", True] < 0.5  # spread over servers, as measured
    assert table.of("A3C/g1")["k80"] == pytest.approx(table.of("A3C/g1", True)["k80"])
    assert all(speed > 0 for speed in table.speed.values())


def test_sia_takes_the_best_batch_and_the_widest_spread(tmp_path: Path) -> None:
    path = tmp_path / "sia.csv.gz"
    path.write_bytes(gzip.compress(SIA.encode()))
    table = read_sia(path)
    assert table.gpus == {"bert/g1": 1, "bert/g2": 2}
    assert table.of("bert/g1") == {"rtx": pytest.approx(0.5), "dgx-ext": 1.0}
    assert table.of("bert/g2", True) == {"dgx-ext": pytest.approx(0.5), "rtx": pytest.approx(0.25)}
    assert table.of("bert/g2") == {"dgx-ext": 1.0, "rtx": pytest.approx(0.25)}  # not measured on one server


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,gpus\n", r"x.csv:1: got model, gpus, expected the columns model, batch_size"),
        (GAVEL.read_text().replace("3.4387678290723933", "fast", 1), r"x.csv:2: steps_per_second: got 'fast'"),
        (GAVEL.read_text().replace("k80,0,", "k80,2,", 1), r"x.csv:2: consolidated: got '2', expected 0 or 1"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        read_gavel(path)


def test_the_published_table_of_sia_or_a_sample(tmp_path: Path) -> None:
    path = Path(os.environ.get("BERTH_TRACES", tmp_path)) / "training-throughputs" / "sia.csv.gz"
    if not path.is_file():
        path = tmp_path / "sia.csv.gz"
        path.write_bytes(gzip.compress(SIA.encode()))
    table = read_sia(path)
    order = sorted(table.of("bert/g1"), key=table.of("bert/g1").__getitem__)
    assert order[-2:] == ["rtx", "dgx-ext"]
