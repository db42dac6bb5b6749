"""`berth policies` and `berth scenarios`: policies and scenarios that are installed."""

from __future__ import annotations

import textwrap
from typing import Annotated, Any

import typer

from berth.cli.answers import Output, OutputOption, answered, print_json, print_table, terminal_width
from berth.cli.common import complete_scenario
from berth.cli.help import examples

__all__ = ["policies_command", "scenarios_app"]

scenarios_app = typer.Typer(rich_markup_mode=None)


def policies_command(output: OutputOption = Output.table) -> None:
    """List policies and their settings."""
    from berth.registry import describe_policies

    found = describe_policies()
    rows = [{**item, "settings": _settings(item)} for item in found]
    if answered(found, output, rows):
        return
    width = terminal_width()
    for item, row in zip(found, rows, strict=True):
        source = "" if item["source"] == "builtin" else f", from {item['source']}"
        _echo(f"{item['name']}  ({item['family'] or 'unknown'} family{source})", width, "")
        _echo(item["summary"], width)
        if row["settings"]:
            _echo(row["settings"], width)


def _settings(item: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in item["settings"].items())


def _echo(text: str, width: int | None, indent: str = "    ") -> None:
    """Print a text, folded where it is longer than a line of the terminal."""
    lines = [text] if width is None else textwrap.wrap(text, max(width - len(indent), 20), break_on_hyphens=False)
    typer.echo("\n".join(indent + line for line in lines))


@scenarios_app.callback(
    invoke_without_command=True, epilog=examples("berth scenarios", "berth scenarios show small --full")
)
def scenarios(context: typer.Context, output: OutputOption = Output.table) -> None:
    """List scenarios, or print one."""
    if context.invoked_subcommand is not None:
        return
    from berth.scenario.catalog import scenario_names

    rows = [{"name": name, "title": title} for name, title in scenario_names().items()]
    if not answered(rows, output):
        print_table(rows, ("name", "title"))


@scenarios_app.command("show", epilog=examples("berth scenarios show small", "berth scenarios show small --full"))
def show_scenario(
    name: Annotated[str, typer.Argument(help="Name of a scenario, or a file.", autocompletion=complete_scenario)],
    full: Annotated[
        bool, typer.Option("--full", help="Print every setting, with defaults and those of extended scenarios.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Print a scenario as YAML.

    -o csv, json and yaml print every setting, as --full does.
    """
    from berth.scenario import load_scenario
    from berth.scenario.catalog import named_file

    file = named_file(name)
    scenario = load_scenario(name)
    if answered(scenario.dump(), output):
        return
    if full or file is None:
        import yaml

        typer.echo(yaml.safe_dump(scenario.dump(), sort_keys=False, allow_unicode=True, width=100), nl=False)
    else:
        typer.echo(file.read_text(encoding="utf-8"), nl=False)


@scenarios_app.command("schema", epilog=examples("berth scenarios schema > scenario.schema.json"))
def schema() -> None:
    """Print the JSON schema of scenario files, for editors."""
    from berth.scenario import scenario_schema

    print_json(scenario_schema())
