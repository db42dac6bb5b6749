"""A service as people run it: a process of its own, asked over HTTP."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from berth.live.local_token import local_token

__all__ = ["Live", "ask", "serving"]

START_SECONDS = 240.0
ANSWER_SECONDS = 240.0


def ask(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = ANSWER_SECONDS,
) -> Any:
    """One request; what it answers. An OSError where nobody does, or the answer is cut."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{url}{path}", data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urlopen(request, timeout=timeout) as answer:
            return json.loads(answer.read())
    except HTTPException as error:
        raise ConnectionError(f"{url}{path}: {error!r}") from error


class Live:
    """A running service; `said` is what it logged until it served."""

    def __init__(self, process: subprocess.Popen[str], url: str, store: Path, said: str = "") -> None:
        self.process, self.url, self.store, self.said = process, url, store, said
        self.lines: list[str] = []
        """What the service has logged since it serves."""
        self.port = int(url.rsplit(":", 1)[1])

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """One request, by default with the token that the service made for this user; what it answers."""
        token = token or local_token(self.url)
        return ask(self.url, method, path, body, {"Authorization": f"Bearer {token}"} if token else None)

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
            self.process.wait(timeout=240)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def serving(
    folder: Path,
    *arguments: str,
    port: int = 0,
    through: Sequence[str] = (),
    module: Sequence[str] = ("berth",),
    **process_settings: Any,
) -> Iterator[Live]:
    """Start `berth serve` with these arguments and wait until it serves; end it afterwards.

    Its store is in this folder, unless an argument says otherwise. It may be started `through` another command, by
    another `module` with its first arguments, and with settings of `subprocess.Popen`.
    """
    store = folder / "berth.db"
    command = [*through, sys.executable, "-m", *module, "serve", "--port", str(port), "--store", str(store), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **process_settings)
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
        live = Live(process, found[1], store, said)
        yield live
    finally:
        live.end()
        reader.join(timeout=10)
        if process.stderr is not None:
            process.stderr.close()
