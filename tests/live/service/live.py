"""A service as people run it: a process of its own, asked over HTTP."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from berth.live.local_token import local_token

__all__ = ["Live", "serving"]

START_SECONDS = 120.0
ANSWER_SECONDS = 60.0


class Live:
    """A running service."""

    def __init__(self, process: subprocess.Popen[str], url: str, store: Path) -> None:
        self.process, self.url, self.store = process, url, store
        self.lines: list[str] = []
        """What the service has logged since it serves."""
        self.port = int(url.rsplit(":", 1)[1])

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """One request, by default with the token that the service made for this user; what it answers."""
        headers = {"Content-Type": "application/json"}
        if token := token or local_token(self.url):
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"{self.url}{path}", data, headers, method=method), timeout=ANSWER_SECONDS) as answer:
            return json.loads(answer.read())

    def wait_for(self, path: str, good: Any) -> Any:
        """Ask again and again until the answer is good."""
        end = time.monotonic() + ANSWER_SECONDS
        while True:
            found = self.ask("GET", path)
            if good(found):
                return found
            assert time.monotonic() < end, f"{path}: {str(found)[:500]}"
            time.sleep(0.1)

    def end(self) -> None:
        """End it in good order."""
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def serving(folder: Path, *arguments: str, port: int = 0, through: Sequence[str] = ()) -> Iterator[Live]:
    """Start `berth serve` with these arguments, its store in this folder, perhaps `through` another command."""
    store = folder / "berth.db"
    command = [*through, sys.executable, "-m", "berth", "serve", "--port", str(port), "--store", str(store), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in process.stderr or ():
            lines.put(line)
            live.lines.append(line)
        lines.put("")

    live = Live(process, "http://127.0.0.1:0", store)
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        said = ""
        while (found := re.search(r"serving at (http://\S+)", said)) is None:
            line = lines.get(timeout=START_SECONDS)
            assert line, f"the service did not start: {said}"
            said += line
        live = Live(process, found[1], store)
        yield live
    finally:
        live.end()
        reader.join(timeout=10)
        if process.stderr is not None:
            process.stderr.close()
