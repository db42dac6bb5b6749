"""JSON with long lists is read as `json.loads` reads it, element by element and beside the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.live.engines.slurm import parsing
from berth.live.engines.slurm.long_json import loads
from tests.live.engines.slurm.recorded import VERSIONS, engine_on, recording

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
ANY = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


def same(value: Any) -> Any:
    return value


@given(
    value=ANY | st.fixed_dictionaries({"errors": ANY, "jobs": st.lists(ANY) | ANY, "meta": ANY}),
    indent=st.sampled_from([None, 2]),
)
def test_it_reads_what_json_reads(value: Any, indent: int | None) -> None:
    assert loads(f" {json.dumps(value, indent=indent)}\n", jobs=same) == value


@given(value=st.dictionaries(st.sampled_from(["jobs", "meta"]), st.lists(ANY)), data=st.data())
def test_it_refuses_what_json_refuses(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text)))
    broken = (
        text[:at] + data.draw(st.sampled_from(["", ",", "]", "}", "x"])) + text[at + data.draw(st.integers(0, 1)) :]
    )
    try:
        expected = json.loads(broken)
    except ValueError:
        with pytest.raises(json.JSONDecodeError):
            loads(broken, jobs=same)
    else:
        assert loads(broken, jobs=same) == expected


@pytest.mark.parametrize(
    "text", ["{1: 2}", "{[]: 2}", '{"a" 2}', '{"a": 2,}', '{"jobs": [1,]}', "{", '{"jobs": [', "{} x", ""]
)
def test_what_only_looks_like_json(text: str) -> None:
    for read in (json.loads, lambda text: loads(text, jobs=same)):
        with pytest.raises(json.JSONDecodeError):
            read(text)


def test_an_element_is_read_before_the_next_is_decoded() -> None:
    seen: list[int] = []
    with pytest.raises(ValueError, match="Expecting"):
        loads('{"jobs": [1, 2, oops', jobs=seen.append)
    assert seen == [1, 2]


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_of_slurm_are_read_beside_the_event_loop(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    for name in ("_job", "_node"):
        read = getattr(parsing, name)

        def noted(found: Any, read: Any = read) -> Any:
            threads.append(threading.get_ident())
            return read(found)

        monkeypatch.setattr(parsing, name, noted)
    nodes = len(recording(version, "nodes.txt").splitlines())

    async def run() -> None:
        engine, slurm = engine_on(tmp_path, version, ["gang", "small"])
        assert (len(await slurm.jobs()), len(await slurm.nodes())) == (2, nodes)
        assert len(threads) == 2 + nodes
        assert threading.get_ident() not in threads
        await engine.close()

    asyncio.run(run())
