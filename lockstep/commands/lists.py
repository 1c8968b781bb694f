"""What is there: `lockstep scenarios`, `clusters`, `workloads`, `profiles`, `strategies`, `schema`."""

import json
from pathlib import Path

import scenarios as scenario_files
from lockstep import terminal
from lockstep.commands.options import Json
from strategies import STRATEGIES


def scenarios(json_: Json = False) -> None:
    """List the scenarios that ship with the product.

    --json lists the scenarios alone; 'lockstep clusters' and 'lockstep workloads' have their own.
    """
    rows = _sentences(scenario_files.shipped())
    if json_:
        print(json.dumps(rows))
        return
    terminal.two_columns(rows)
    for shelf in ("clusters", "workloads"):
        section = shelf.removesuffix("s")
        print(f"\n{shelf.capitalize()}, for '{section}: NAME' or '{section}: {{preset: NAME, …}}':\n")
        terminal.two_columns(_sentences(scenario_files.shelf(shelf)))


def clusters(json_: Json = False) -> None:
    """List the clusters that ship with the product."""
    _list(_sentences(scenario_files.shelf("clusters")), json_)


def workloads(json_: Json = False) -> None:
    """List the workloads that ship with the product."""
    _list(_sentences(scenario_files.shelf("workloads")), json_)


def profiles(json_: Json = False) -> None:
    """List the profiles that ship with the product."""
    _list(_sentences(scenario_files.profiles()), json_)


def _sentences(files: dict[str, Path]) -> dict[str, str]:
    return {name: terminal.first_comment(path) for name, path in files.items()}


def strategies(json_: Json = False) -> None:
    """List the strategies and their parameters with the defaults.

    --json lists all parameters of each; otherwise those that many share come once, at the end.
    """
    parameters = {
        name: {key: p.default for key, p in strategy.parameters.items()}
        for name, strategy in STRATEGIES.items()
    }
    if json_:
        print(json.dumps(parameters))
    else:
        terminal.show_strategies()


def _list(rows: dict[str, str], json_: bool) -> None:
    if json_:
        print(json.dumps(rows))
    else:
        terminal.two_columns(rows)


def schema() -> None:
    """Print the JSON Schema of a scenario file.

    Editors complete and check scenario files with it.
    """
    from lockstep.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
