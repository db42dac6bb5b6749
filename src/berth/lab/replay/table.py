"""A replay in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from berth.lab.replay.run import Replay
from berth.lab.show.trace_table import spoken_time
from berth.lab.show.words import number, percent

__all__ = ["print_replay"]


def print_replay(result: Replay, console: Console) -> None:
    """One row a policy; then what was left out, and whoever could not serve."""
    table = Table(box=None, pad_edge=False)
    table.add_column("policy", overflow="fold", min_width=8)  # long names are folded, numbers never cut
    shared = any("fragmentation" in row for row in result.rows)
    heads = ["wait", "p95", "turnaround", "slowdown", "p95", "used", "fair"]
    for name in (*heads, *(("fragments",) if shared else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.rows:
        if "mean_wait_seconds" not in row:
            table.add_row(escape(row["policy"]), "no job started")
            continue
        cells = [
            spoken_time(row["mean_wait_seconds"]),
            spoken_time(row["p95_wait_seconds"]),
            spoken_time(row["mean_turnaround_seconds"]),
            number(row["mean_bounded_slowdown"]),
            number(row["p95_bounded_slowdown"]),
            percent(row["utilisation"]),
            number(row["owner_fairness"], 3),
        ]
        if shared:
            cells.append(percent(row.get("fragmentation")))
        table.add_row(escape(row["policy"]), *cells)
    console.print(table)
    first = result.rows[0]
    load = first.get("offered_load")
    told = f"{first['jobs']:,} {'job' if first['jobs'] == 1 else 'jobs'}"
    told += "" if load is None else f", offered load {load:.3g}"
    told += ". Means and 95th percentiles; slowdown is bounded (10 s), used is the share of "
    told += f"{first.get('resource', 'everything')} until the last end, fair is Jain's index of users' mean slowdowns"
    told += ", fragments the share of devices that are free but of no use to a job." if shared else "."
    console.print(Text(told, style="dim"))
    for row in result.rows:
        if row["never_started"]:
            console.print(Text(f"{row['policy']}: {row['never_started']:,} jobs never started", style="yellow"))
    for policy, reason in result.refused.items():
        console.print(Text(f"not here: {policy}: {reason}", style="dim"))
    if result.unreadable:
        console.print(Text(f"not read: {result.unreadable}", style="yellow"))
    if result.left_out:
        listed = ", ".join(f"{reason} {count:,}" for reason, count in result.left_out.items())
        whole = " in the whole trace" if result.setting.first is not None else ""
        console.print(Text(f"left out or repaired{whole}: {listed} (see: berth trace check)", style="dim"))
