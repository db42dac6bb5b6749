"""A service that tests ask over HTTP: in a thread of the test process, or as people run it, in a process."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

from berth.cli import command_line, main
from berth.live.local_token import local_token
from berth.live.service.serving import Config, prepared, run
from tests.harness.waiting import DEADLINE, eventually

__all__ = ["Live", "LiveProcess", "ask", "command", "serving", "serving_process"]

ANSWER_SECONDS = DEADLINE


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
    """A running service."""

    def __init__(self, url: str, store: Path) -> None:
        self.url, self.store = url, store
        self.port = int(url.rsplit(":", 1)[1])

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """One request, by default with the token that the service made for this user; what it answers."""
        token = token or local_token(self.url)
        return ask(self.url, method, path, body, {"Authorization": f"Bearer {token}"} if token else None)

    def wait_for(self, path: str, good: Callable[[Any], object]) -> Any:
        """Ask again and again until the answer is good."""
        return eventually(lambda: self.ask("GET", path), good, path)


def command(words: Sequence[str], **environment: str) -> tuple[int, str, str]:
    """Run a command line in this process: exit code, output and errors."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


@contextmanager
def serving(folder: Path, *arguments: str, port: int = 0) -> Iterator[Live]:
    """Serve in a thread with what `berth serve` makes of these arguments; stop in good order afterwards.

    Its store is in this folder, unless an argument says otherwise.
    """
    store = folder / "berth.db"
    config = _parsed("--port", str(port), "--store", str(store), *arguments)
    url: Future[str] = Future()
    ended: Future[None] = Future()
    stopping: list[Callable[[], object]] = []

    async def until_stopped() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        await run(prepared(config, config), config, url.set_result, stop)

    def serve() -> None:
        try:
            asyncio.run(until_stopped())
            ended.set_result(None)
        except BaseException as error:
            ended.set_exception(error)
            if not url.done():
                url.set_exception(error)

    thread = threading.Thread(target=serve, name="berth serve")
    thread.start()
    try:
        yield Live(url.result(DEADLINE), store)
    finally:
        if not ended.done():
            stopping[0]()
        thread.join(DEADLINE)
    ended.result(0.0)


def _parsed(*arguments: str) -> Config:
    with patch("berth.live.service.serving.serve") as serve:
        command_line()(["serve", *arguments], standalone_mode=False)
    config = serve.call_args.args[0]
    assert isinstance(config, Config)
    return config


class LiveProcess(Live):
    """A service in a process of its own; `said` is what it logged until it served."""

    def __init__(self, process: subprocess.Popen[str], url: str, store: Path, said: str, lines: list[str]) -> None:
        super().__init__(url, store)
        self.process, self.said = process, said
        self.lines = lines
        """What the service has logged."""


@contextmanager
def serving_process(
    folder: Path,
    *arguments: str,
    port: int = 0,
    through: Sequence[str] = (),
    module: Sequence[str] = ("berth",),
    **process_settings: Any,
) -> Iterator[LiveProcess]:
    """Start `berth serve` with these arguments and wait until it serves; end it afterwards.

    Its store is in this folder, unless an argument says otherwise. It may be started `through` another command, by
    another `module` with its first arguments, and with settings of `subprocess.Popen`.
    """
    store = folder / "berth.db"
    command = [*through, sys.executable, "-m", *module, "serve", "--port", str(port), "--store", str(store), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **process_settings)
    new: queue.Queue[str] = queue.Queue()
    lines: list[str] = []

    def read() -> None:
        for line in process.stderr or ():
            lines.append(line)
            new.put(line)
        new.put("")

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        said = ""
        while (found := re.search(r"serving at (http://\S+)", said)) is None:
            line = new.get(timeout=DEADLINE)
            assert line, f"the service did not start: {said}"
            said += line
        yield LiveProcess(process, found[1], store, said, lines)
    finally:
        process.terminate()
        try:
            process.wait(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(timeout=10)
        if process.stderr is not None:
            process.stderr.close()
