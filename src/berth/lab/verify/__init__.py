"""Published results of others, computed again: `berth verify`.

Each check repeats a protocol exactly, on the same public data, and holds every printed number against berth's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from berth.errors import InvalidInput, UnknownName
from berth.lab.show.page import rendered
from berth.lab.verify.batch import HPCOPT, RLSCHEDULER
from berth.lab.verify.lines import Check, Line, Progress
from berth.lab.verify.networks import REPOSITORY
from berth.lab.verify.openb import FGD
from berth.traces.folder import traces_folder

__all__ = ["CHECKS", "Check", "Line", "render_verified", "verify"]

CHECKS: Mapping[str, Check] = {
    "rlscheduler": RLSCHEDULER,
    "rlscheduler-networks": REPOSITORY,
    "hpcopt": HPCOPT,
    "fgd": FGD,
}
"""Published results by name."""


def verify(
    names: Sequence[str] = (), traces: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> dict[str, list[Line]]:
    """Compute published results again, all or those named; `traces` is the folder of public traces.

    Unless it is named, a result is left out if it is optional and its files are not there.
    """
    unknown = next((name for name in names if name not in CHECKS), None)
    if unknown is not None:
        raise UnknownName("published result", unknown, CHECKS)
    folder = traces_folder(traces or None) or Path()
    found: dict[str, list[Line]] = {}
    for name in names or CHECKS:
        check = CHECKS[name]
        missing = next((file for file in check.files if not (folder / file).is_file()), None)
        if missing is not None and check.optional and not names:
            continue
        if missing is not None:
            expected = "a folder of public traces (--traces, or BERTH_TRACES)"
            raise InvalidInput(expected, found=f"no {folder / missing}", key="traces")
        found[name] = check.lines(folder, progress or (lambda where, done, total: None))
    return found


def render_verified(found: Mapping[str, Sequence[Line]], command: str) -> str:
    """The documentation page."""
    repeated = [line for lines in found.values() for line in lines if line.theirs is not None and not line.rival]
    count, good = len(repeated), sum(line.verdict != "different" for line in repeated)
    return rendered(
        "verified.md",
        command=command,
        count=count,
        good=good,
        rivals=any(line.rival for lines in found.values() for line in lines),
        checks=[(name, CHECKS[name], lines) for name, lines in found.items()],
        shown=lambda value, digits: f"{value:,.{digits}f}",
    )
