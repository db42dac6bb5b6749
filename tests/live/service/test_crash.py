"""A scheduler that is killed at any moment loses nothing that it acknowledged and begins nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def crash(where: str, kills: int) -> dict[str, int]:
    """Run the crash test; what it counted."""
    command = [sys.executable, "-m", "tests.live.service.crash", "--store", where, "--kills", str(kills)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    print(found)
    return found


def test_ten_kills(where: str) -> None:
    found = crash(where, 10)
    assert found["kills"] == 10
    assert found["jobs acknowledged"] > 10


@pytest.mark.slow
def test_two_hundred_kills(where: str) -> None:
    found = crash(where, 200)
    assert found["kills"] == 200
    assert found["jobs acknowledged"] > 200
