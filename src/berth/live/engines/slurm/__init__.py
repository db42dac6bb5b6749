"""Slurm as an engine: jobs are submitted with their final node lists, and every one is known by a tag of ours.

`engine` drives, `commands` (or `rest`) talk to Slurm, `reading` and `writing` are its words, `judging` says what they
mean, `spool` remembers, and `companion` serves people who give their jobs to Slurm itself. `users`, `outputs` and
`environment` say as whom a job runs, where it prints, and what its process gets.
"""

from berth.live.engines.slurm.engine import SlurmEngine, check_settings
from berth.live.engines.slurm.settings import SlurmSettings, read_settings

__all__ = ["SlurmEngine", "SlurmSettings", "check_settings", "read_settings"]
