"""Slurm as an engine: jobs are submitted with their final node lists, and each is identified by berth's tag.

`engine` executes commands, `commands` or `rest` talk to Slurm, `parsing` reads its output, `layout` and `submission`
write its jobs, `interpret` says what its records mean, `watch` and `attempts` follow jobs, `spool` remembers attempts,
and `companion` serves users who submit to Slurm itself. `outputs` and `environment` decide where a job prints, as whom
it runs, and what environment it gets.
"""

from berth.live.engines.slurm.engine import SlurmEngine, check_settings
from berth.live.engines.slurm.settings import SlurmSettings, read_settings

__all__ = ["SlurmEngine", "SlurmSettings", "check_settings", "read_settings"]
