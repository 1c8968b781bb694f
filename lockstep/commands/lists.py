"""What is there: `lockstep scenarios`, `profiles`, `strategies`, `schema`."""

import json

import scenarios as scenario_files
from lockstep import terminal
from lockstep.commands.options import Json
from strategies import STRATEGIES


def scenarios(json_: Json = False) -> None:
    """List the scenarios that ship with the product."""
    shipped = scenario_files.shipped()
    rows = {name: terminal.first_comment(path) for name, path in shipped.items()}
    _list(rows, json_)


def profiles(json_: Json = False) -> None:
    """List the profiles that ship with the product."""
    shipped = scenario_files.profiles()
    _list({name: terminal.first_comment(path) for name, path in shipped.items()}, json_)


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
