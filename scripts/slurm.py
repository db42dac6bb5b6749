"""Slurm for tests and benchmarks: `berth.live.clusters.slurm` starts it; this installs its programs and two kinds of
MPI.

python3 scripts/slurm.py install   installs them with apt, where they are not there (needs root)
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
MPI = ("mpicc.mpich", "mpirun.mpich", "mpicc.openmpi", "mpirun.openmpi", "gcc")


def install() -> None:
    """Install what is not there; no service of Slurm or munge is started."""
    where = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
    missing = [program for program in (*PROGRAMS, *MPI) if shutil.which(program, path=where) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        sys.exit(
            f"slurm: there is no apt-get here; install Slurm, munge and MPI so that these are in the PATH: {missing}"
        )
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "update", "-q"], check=True, env=quiet)
    subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *PACKAGES], check=True, env=quiet)


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit(__doc__)
    install()
