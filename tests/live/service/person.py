"""A process in which another user of the machine runs commands and serves, one request after the other.

`python -m tests.live.service.person` reads a request from each line of standard input, and answers with a line.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.live.service.live import command, serving


def main() -> None:
    answers = sys.stdout
    with ExitStack() as stack:
        for line in sys.stdin:
            asked: dict[str, Any] = json.loads(line)
            if "serve" in asked:
                answer: Any = stack.enter_context(serving(Path.cwd(), *asked["serve"])).url
            elif "run" in asked:
                answer = command(asked["run"], **asked["environment"])
            else:
                answer = stack.close()  # type: ignore[func-returns-value]
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
