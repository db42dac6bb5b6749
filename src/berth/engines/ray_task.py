"""One task of a gang on a node of a Ray cluster: waits until the gang is whole, runs, and answers for it meanwhile.

Pickled by value, as are `ray_gang` and `ray_keeper`: nodes need Ray, and nothing of berth.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["run_task"]

LARGEST = 16 * 2**20
"""The largest result of a callable, in bytes of its pickle."""
CALL = """
import os, sys
from ray import cloudpickle
with open(sys.argv[1], "rb") as file:
    found = cloudpickle.load(file)()
with open(sys.argv[2] + ".new", "wb") as file:
    cloudpickle.dump(found, file)
os.rename(sys.argv[2] + ".new", sys.argv[2])
"""
"""Calls what was pickled, in a process of its own."""


def run_task(keeper: Any, key: tuple[str, int], index: int, told: Mapping[str, Any], guard: str) -> dict[str, Any]:
    """Run it under a guard (`ray_guard`, as text); how it went."""
    import ray

    def asked() -> tuple[str, float]:
        """What the keeper says, and when it was asked."""
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        return str(ray.get(keeper.pulse.remote(*key, index), timeout=told["lease"])), at

    word, heard = asked()
    while word == "wait":
        word, heard = asked()
    if word == "end":
        return {"how": "never began", "error": None, "code": None, "seconds": 0.0}
    folder = Path(_logs(), "berth", f"{key[0]}-{key[1]}")
    folder.mkdir(parents=True, exist_ok=True)
    name = str(folder / f"{told['role']}-{told['rank']}")
    order = {**told, "environment": _environment(told), "heard": heard, "out": f"{name}.out", "err": f"{name}.err"}
    order["script_file"] = f"{name}.script"
    if told.get("callable") is not None:
        Path(f"{name}.callable").write_bytes(base64.b64decode(told["callable"]))
        order["command"] = [sys.executable, "-c", CALL, f"{name}.callable", f"{name}.result"]
        del order["callable"]
    try:
        return _guarded(order, guard, asked) | _left(name)
    finally:
        for end in ("script", "callable", "result", "result.new"):
            with suppress(OSError):
                os.unlink(f"{name}.{end}")


def _logs() -> str:
    import ray._private.worker

    return str(ray._private.worker._global_node.get_logs_dir_path())


def _environment(told: Mapping[str, Any]) -> dict[str, str]:
    """What a task finds in its environment: that of the node, what its owner gave, and what it is itself."""
    here = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**here, **told["environment"], **told["berth"]}


def _guarded(order: Mapping[str, Any], guard: str, asked: Any) -> dict[str, Any]:
    running = subprocess.Popen(
        [sys.executable, "-IS", "-X", "utf8", "-c", guard],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    to, out = running.stdin, running.stdout
    if to is None or out is None:
        raise RuntimeError("no pipes to the guard")
    over = threading.Event()

    def pulses() -> None:
        with suppress(OSError, ValueError):  # the guard has ended
            while not over.is_set():
                try:
                    word, at = asked()
                except Exception:  # the keeper does not answer: the guard knows how long that may last
                    over.wait(0.5)
                    continue
                if word == "end":
                    to.close()
                    return
                to.write(struct.pack("d", at))
                to.flush()

    try:
        to.write(json.dumps(order).encode() + b"\n")
        to.flush()
        threading.Thread(target=pulses, daemon=True).start()
        said = out.read()
    finally:
        over.set()
        with suppress(OSError):
            to.close()
        running.wait()
        out.close()
    if not said:
        return {"how": "unguarded", "error": "its guard was killed", "code": None, "seconds": 0.0}
    found: dict[str, Any] = json.loads(said)
    return found


def _left(name: str) -> dict[str, Any]:
    """What a task left behind: its last words, and the result of a callable."""
    left: dict[str, Any] = {"words": "", "result": None, "large": 0}
    with suppress(OSError), open(f"{name}.err", "rb") as err:
        err.seek(max(err.seek(0, os.SEEK_END) - 4096, 0))
        lines = [line.strip() for line in err.read().decode(errors="replace").splitlines() if line.strip()]
        left["words"] = lines[-1][:300] if lines else ""
    with suppress(OSError):
        left["large"] = os.stat(f"{name}.result").st_size
        if left["large"] <= LARGEST:
            left["result"], left["large"] = Path(f"{name}.result").read_bytes(), 0
    return left
