"""The folder of public traces, which the user names once."""

from __future__ import annotations

import os
from pathlib import Path

from berth.errors import InvalidInput

__all__ = ["VARIABLE", "trace_beside", "traces_folder"]

VARIABLE = "BERTH_TRACES"
"""Environment variable for the folder of traces."""


def traces_folder(given: str | os.PathLike[str] | None = None) -> Path | None:
    """Folder of traces: the given one, else that of BERTH_TRACES; None without either.

    >>> traces_folder("nowhere")
    Traceback (most recent call last):
    berth.errors.InvalidInput: --traces: got 'nowhere', expected a folder
    """
    text = os.environ.get(VARIABLE, "") if given is None else os.fspath(given)
    if not text:
        return None
    folder = Path(text).expanduser().absolute()
    if not folder.is_dir():
        raise InvalidInput("a folder", value=text, key=VARIABLE if given is None else "--traces")
    return folder


def trace_beside(folder: Path, name: str) -> Path:
    """The file of a trace that a file in `folder` names: relative to it, or else to the folder of traces.

    >>> trace_beside(Path("here"), "missing.swf").as_posix()
    'here/missing.swf'
    """
    beside = folder / Path(name).expanduser()
    if not beside.exists() and (traces := traces_folder()) is not None and (traces / name).exists():
        return traces / name
    return beside
