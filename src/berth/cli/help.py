"""Help pages: commands in groups, and examples."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

__all__ = ["GROUPS", "GroupedCommands", "examples"]

GROUPS = {
    "Lab": (*("demo", "compare", "sweep", "leaderboard", "reproduce", "verify", "train", "scenarios", "policies"),),
    "Traces": ("trace", "workload", "replay"),
    "Scheduler": (
        *("serve", "submit", "jobs", "job", "plan", "explain", "servers", "policy", "learned", "decisions"),
        *("rehearse", "token"),
    ),
    "Clusters": ("cluster", "slurm", "kubernetes"),
}
"""Commands by group, in the order of `berth --help`."""


MOVED = {"train-order": "'berth-train-order' of examples/learned-order now: install that first (`pip install .` there)"}
"""Commands of earlier versions, and what became of each."""


class GroupedCommands(TyperGroup):
    """The main command: its help lists commands by group. Plain text, because rich takes long to import."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of this name; of a subcommand without its command, say the whole."""
        name = args[0] if args else ""
        if name in MOVED:
            ctx.fail(f"{name!r} is {MOVED[name]}")
        homes = [home for home, command in self.commands.items() if name in getattr(command, "commands", ())]
        if homes and name not in self.commands:
            ctx.fail(f"No such command {name!r}. Did you mean 'berth {homes[0]} {name}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group."""
        widest = max(map(len, self.commands))
        room = formatter.width - widest - 6
        for title, names in GROUPS.items():
            with formatter.section(title):
                rows = [(f"{name:<{widest}}", self.commands[name].get_short_help_str(room)) for name in names]
                formatter.write_dl(rows)


def examples(*lines: str) -> str:
    """The end of a help page: command lines that work as they stand."""
    return "\n".join(["\b", "Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)])
