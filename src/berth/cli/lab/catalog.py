"""`berth policies` and `berth scenarios`: what comes with berth, and with installed packages."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.common import Output, OutputOption, complete_scenario, print_json

__all__ = ["policies_command", "scenarios_app"]

scenarios_app = typer.Typer(help="The scenarios that come with berth.", rich_markup_mode=None)


def policies_command(output: OutputOption = Output.table) -> None:
    """List the policies, their settings and where they come from."""
    from berth.registry import describe_policies

    found = describe_policies()
    if output is Output.json:
        print_json(found)
        return
    for item in found:
        typer.secho(item["name"], bold=True, nl=False)
        source = "" if item["source"] == "builtin" else f", from {item['source']}"
        typer.echo(f"  ({item['family'] or 'unknown'} family{source})")
        typer.echo(f"    {item['summary']}")
        if item["settings"]:
            typer.echo("    " + ", ".join(f"{key}={value}" for key, value in item["settings"].items()))


@scenarios_app.callback(invoke_without_command=True)
def scenarios(context: typer.Context, output: OutputOption = Output.table) -> None:
    """List the scenarios; `show NAME` prints one, `schema` prints the JSON schema of scenario files."""
    if context.invoked_subcommand is not None:
        return
    from berth.scenario.catalog import scenario_names

    names = scenario_names()
    if output is Output.json:
        print_json([{"name": name, "title": title} for name, title in names.items()])
        return
    width = max(map(len, names), default=0)
    for name, title in names.items():
        typer.echo(f"{name:<{width}}  {title}")


@scenarios_app.command("show")
def show_scenario(
    name: Annotated[str, typer.Argument(help="Name or file.", autocompletion=complete_scenario)],
    full: Annotated[bool, typer.Option("--full", help="Every setting, also those it takes from others.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Print a scenario as YAML: as it is written, or with --full every setting."""
    from berth.scenario import load_scenario
    from berth.scenario.catalog import named_file

    file = named_file(name)
    scenario = load_scenario(name)
    if output is Output.json:
        print_json(scenario.dump())
    elif full or file is None:
        import yaml

        typer.echo(yaml.safe_dump(scenario.dump(), sort_keys=False, allow_unicode=True, width=100), nl=False)
    else:
        typer.echo(file.read_text(encoding="utf-8"), nl=False)


@scenarios_app.command("schema")
def schema() -> None:
    """Print the JSON schema of scenario files, for editors."""
    from berth.scenario import scenario_schema

    print_json(scenario_schema())
