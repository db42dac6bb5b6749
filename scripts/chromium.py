"""Chromium for tests of the pages: the one that is installed, headless.

python3 scripts/chromium.py install   installs it with apt, where it is not there (needs root)
python3 scripts/chromium.py where     prints where it is
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Arguments with which it shows nothing, and asks nobody but the service that is tested."""


def browser() -> str | None:
    """Where the program is; None where there is none. BERTH_CHROMIUM stands above what is in the PATH."""
    given = os.environ.get("BERTH_CHROMIUM")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


def install() -> None:
    """Install it, where it is not there."""
    if browser() is not None:
        return
    if shutil.which("apt-get") is None:
        sys.exit("chromium: there is no apt-get here; install Chromium so that chromium is in the PATH")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], check=True, env=quiet)
    subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"], check=True, env=quiet)


def main() -> None:
    command = sys.argv[1:]
    if command == ["install"]:
        install()
    elif command == ["where"]:
        print(browser() or sys.exit("chromium: not installed (python3 scripts/chromium.py install)"))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
