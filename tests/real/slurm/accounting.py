"""A Slurm cluster with accounting: a slurmdbd and a MariaDB of its own, so that limits of QOS hold."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth.live.clusters import MARK, ClusterError, end, free_ports, marked
from berth.live.clusters.slurm import LocalSlurm
from tests.harness.waiting import eventually
from tests.real.local import up

__all__ = ["AccountedSlurm", "accounted_slurm", "missing_accounting"]

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "my_print_defaults", "sacctmgr")
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
USER = pwd.getpwuid(os.getuid()).pw_name
LICENSED = """\
function slurm_job_submit(job, partitions, user)
  if job.name and job.name:match("^licensed") then job.licenses = "matlab:1" end
  return slurm.SUCCESS
end
function slurm_job_modify() return slurm.SUCCESS end
"""
"""A job whose name begins with `licensed` needs the one licence: a user of berth cannot ask for it."""


def missing_accounting() -> list[str]:
    """Programs of the accounting that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


class AccountedSlurm(LocalSlurm):
    """Two nodes; all jobs are of one association, whose QOS is `normal`. Jobs start strictly in Slurm's order."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        super().__init__(
            directory,
            2,
            more=[
                "SchedulerType=sched/builtin",
                "Licenses=matlab:1",
                "JobSubmitPlugins=lua",
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={port}",
                f"AccountingStoragePass={directory.resolve()}/munge.socket",
                "AccountingStorageEnforce=limits,qos",
            ],
        )
        (self.directory / "job_submit.lua").write_text(LICENSED)
        self._database = self.directory / "database"
        (self.directory / "slurmdbd.conf").write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={self.directory}/munge.socket\nDbdHost=localhost\nDbdPort={port}\n"
            f"SlurmUser={USER}\nPidFile={self.directory}/slurmdbd.pid\n"
            f"StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser={USER}\n"
        )
        (self.directory / "slurmdbd.conf").chmod(0o600)  # else slurmdbd refuses it

    def begin(self, name: str) -> None:
        """Start one daemon; accounting first, without which slurmctld does not start."""
        if name == "slurmctld" and "slurmdbd" not in self.daemons():
            self._begin_accounting()
        super().begin(name)

    def stop(self) -> None:
        """End it without waiting for what it would still write to its database."""
        end(marked(self.directory), signal.SIGKILL)
        super().stop()

    def _begin_accounting(self) -> None:
        socket = self.directory / "mariadb.socket"
        options = ["--no-defaults", f"--datadir={self._database}", f"--user={USER}"]
        if not self._database.exists():
            subprocess.run(["mariadb-install-db", *options, "--skip-test-db"], check=True, capture_output=True)
        # no grants: its socket is in a directory of the user who runs it
        self._spawn("mariadbd", *options, f"--socket={socket}", "--skip-networking", "--skip-grant-tables")
        self._wait(socket.exists, "mariadbd does not listen")
        self._spawn("slurmdbd", "-D", MYSQL_UNIX_PORT=str(socket))
        eventually(self._has_cluster, bool, "slurmdbd does not answer")
        if USER not in self.ask("sacctmgr", "-n", "list", "associations", "format=user"):
            self.ask("sacctmgr", "-i", "add", "account", "lab")
            self.ask("sacctmgr", "-i", "add", "user", USER, "account=lab")

    def _spawn(self, name: str, *options: str, **environment: str) -> None:
        with (self.directory / f"{name}.out").open("ab") as output:
            self._running[name] = subprocess.Popen(
                [shutil.which(name, path=PATH) or name, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self.environment, MARK: str(self.directory), **environment},
                cwd=self.directory,
            )

    def _has_cluster(self) -> bool:
        try:
            if not self.ask("sacctmgr", "-n", "list", "clusters", "format=cluster").strip():
                self.ask("sacctmgr", "-i", "add", "cluster", "berth")
        except ClusterError:
            return False
        return True

    def limit(self, name: str, value: int) -> None:
        """Set a limit of the QOS of all jobs; -1 removes it."""
        self.ask("sacctmgr", "-i", "modify", "qos", "normal", "set", f"{name}={value}")


@contextmanager
def accounted_slurm() -> Iterator[AccountedSlurm]:
    """A cluster with a short path, since sockets lie in it."""
    with up(AccountedSlurm(Path(tempfile.mkdtemp(prefix="slurm-")))) as cluster:
        yield cluster
