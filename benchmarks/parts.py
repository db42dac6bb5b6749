"""berth's command line with a part of the service switched off: `python -m benchmarks.parts unlearned serve …`.

`benchmarks.real_clusters` starts services so, to measure what each part brings on a real cluster.
"""

from __future__ import annotations

import sys
from functools import partial

from berth.cli import main
from berth.live.service import scheduler
from berth.live.twin.knowledge import PARTS, PartDispatcher

if __name__ == "__main__":
    part = sys.argv.pop(1)
    if part not in PARTS:
        raise SystemExit(f"expected one of {', '.join(PARTS)}, not {part}")
    scheduler.Dispatcher = partial(PartDispatcher, without=part)  # type: ignore[assignment,attr-defined]
    sys.exit(main())
