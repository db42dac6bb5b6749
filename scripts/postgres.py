"""PostgreSQL for tests and benchmarks: a private server in a temporary directory, gone when it is not needed any more.

python3 scripts/postgres.py install   installs it with apt, where it is not there (needs root)
python3 scripts/postgres.py run       starts a server, prints its address, and ends it when standard input ends
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60.0


def binaries() -> Path | None:
    """Where the programs of the newest installed server are; None where there is none."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: float(path.split("/")[4]))
    if found:
        return Path(found[-1]).parent
    beside = shutil.which("initdb")
    return Path(beside).parent if beside else None


def install() -> None:
    """Install it, where it is not there."""
    if binaries() is not None:
        return
    if shutil.which("apt-get") is None:
        sys.exit("postgres: there is no apt-get here; install PostgreSQL so that initdb and postgres are in the PATH")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], check=True, env=quiet)
    subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "postgresql"], check=True, env=quiet)


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[str]:
    """The address of an empty database; only a `durable` server waits for the disk."""
    where = binaries()
    if where is None:
        raise RuntimeError("PostgreSQL is not installed (python3 scripts/postgres.py install)")
    account = pwd.getpwnam("postgres") if os.getuid() == 0 else None  # the server refuses to run as root
    as_user: dict[str, int] = {"user": account.pw_uid, "group": account.pw_gid} if account else {}
    name = account.pw_name if account else pwd.getpwuid(os.getuid()).pw_name
    # a short path: the socket lies in it, whose name has little room
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        data, log = Path(folder, "data"), Path(folder, "log")
        initialise = [where / "initdb", "-D", data, "--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C"]
        subprocess.run(initialise, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)  # type: ignore[call-overload]
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", f"fsync={'on' if durable else 'off'}"]
        command = [where / "postgres", "-D", data, *(part for setting in settings for part in ("-c", setting))]
        with log.open("w") as output:
            server = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, **as_user)  # type: ignore[call-overload]
            try:
                ready: list[str | Path] = [where / "pg_isready", "-q", "-h", folder, "-U", name, "-d", "postgres"]
                end = time.monotonic() + START_SECONDS
                while subprocess.run(ready, cwd=folder).returncode:
                    if server.poll() is not None or time.monotonic() > end:
                        raise RuntimeError(f"PostgreSQL did not start: {log.read_text()[-500:]}")
                    time.sleep(0.05)
                yield f"postgresql://{name}@/postgres?host={folder}"
            finally:
                server.terminate()
                try:
                    server.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    server.kill()
                    server.wait()


def main() -> None:
    command = sys.argv[1:]
    if command == ["install"]:
        install()
    elif command == ["run"]:
        with postgres_server() as address:
            print(address, flush=True)
            sys.stdin.read()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
