"""A `berth` for shells whose commands run in the test process: a small program sends them there."""

from __future__ import annotations

import io
import json
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from tests.live.service.live import command, serving

__all__ = ["berth_in_process"]

PROGRAM = """#!{python} -SE
import json, socket, sys
there = socket.socket(socket.AF_UNIX)
there.connect("{address}")
text = sys.stdin.read() if "-" in sys.argv else ""
there.sendall(json.dumps([sys.argv[1:], text]).encode() + b"\\n")
code, out, err = json.loads(there.makefile().readline())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


@contextmanager
def berth_in_process(folder: Path, port: int) -> Iterator[Path]:
    """Put a program `berth` into a folder of its own; services serve at this port until the program is killed."""
    one_at_a_time = threading.Lock()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            words, text = json.loads(self.rfile.readline())
            if words[0] == "serve":
                with ExitStack() as stack:
                    with one_at_a_time:  # typer changes the environment while it parses
                        stack.enter_context(serving(folder, *words[1:], port=port))
                    self.rfile.read()
                return
            with one_at_a_time, patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()))):
                answer = command(words)
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    address, program = folder / "commands", folder / "programs" / "berth"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with socketserver.ThreadingUnixStreamServer(str(address), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield program.parent
        finally:
            server.shutdown()
            thread.join()
