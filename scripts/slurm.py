"""Slurm for tests and benchmarks: `berth.live.clusters.slurm` starts it; this installs its programs and two kinds of
MPI.

python3 scripts/slurm.py install [--accounting]   installs them with apt, where they are not there (needs root)

`--accounting` adds slurmdbd and MariaDB, for slow tests of limits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurmrestd",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-jwt-plugin",
    "munge",
    "mpich",
    "libmpich-dev",
    "openmpi-bin",
    "libopenmpi-dev",
    "gcc",
    "libc6-dev",
)
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "slurmrestd", "munged")
ACCOUNTING = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",
}
"""Programs of the accounting, and their packages."""
MPI = ("mpicc.mpich", "mpirun.mpich", "mpicc.openmpi", "mpirun.openmpi", "gcc")


def install(accounting: bool = False) -> None:
    """Install what is not there; no service of Slurm, munge or MariaDB is started."""
    where = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
    programs = [*PROGRAMS, *MPI, *(ACCOUNTING if accounting else ())]
    missing = [program for program in programs if shutil.which(program, path=where) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        sys.exit(
            f"slurm: there is no apt-get here; install Slurm, munge and MPI so that these are in the PATH: {missing}"
        )
    packages = [*PACKAGES, *(dict.fromkeys(ACCOUNTING.values()) if accounting else ())]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "update", "-q"], check=True, env=quiet)
    subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages], check=True, env=quiet)


if __name__ == "__main__":
    if sys.argv[1:] not in (["install"], ["install", "--accounting"]):
        sys.exit(__doc__)
    install("--accounting" in sys.argv)
