"""What is there: `lockstep scenarios`, `clusters`, `workloads`, `profiles`, `strategies`, `systems` …"""

from inspect import Parameter
from pathlib import Path

from lockstep import listing
from lockstep import scenarios as scenario_files
from lockstep.printing import Csv, Json, Markdown, Printing, named

# The shipped scenarios by the folder that they are in, in the order in which a newcomer needs them.
_GROUPS = {
    "": "Scenarios to start from",
    "pipelines": "Models that are split into stages",
    "tensor": "Models whose layers are cut",
    "strategies": "One for each strategy",
    "systems": "The systems of the articles, which 'lockstep systems' explains",
    "systems/published": "Systems at sizes of which figures were published",
    "faults": "Machines that are taken away, as others saw it",
    "claims": "What papers claim, which 'lockstep claims' tries",
}


def scenarios(json_: Json = False, csv: Csv = False, markdown: Markdown = False) -> None:
    """List the scenarios that ship with the product.

    In groups, with the clusters and workloads that they can name; --json and --csv list the scenarios alone:
    'lockstep clusters' and 'lockstep workloads' have their own.
    """
    rows = _sentences(scenario_files.shipped())
    if Printing(json_, csv, markdown).print(rows, lambda: named(rows)):
        return
    blocks = {
        title: {name: text for name, text in rows.items() if name.rpartition("/")[0] == folder}
        for folder, title in _GROUPS.items()
    }
    for shelf in ("clusters", "workloads"):
        section = shelf.removesuffix("s")
        title = f"{shelf.capitalize()}, for '{section}: NAME' or '{section}: {{preset: NAME, …}}'"
        blocks[title] = _sentences(scenario_files.shelf(shelf))
    for place, (title, block) in enumerate(blocks.items()):
        print(f"{chr(10) if place else ''}{title}:\n")
        listing.two_columns(block)


def clusters(json_: Json = False, csv: Csv = False, markdown: Markdown = False) -> None:
    """List the clusters that ship with the product."""
    _list(scenario_files.shelf("clusters"), Printing(json_, csv, markdown))


def workloads(json_: Json = False, csv: Csv = False, markdown: Markdown = False) -> None:
    """List the workloads that ship with the product."""
    _list(scenario_files.shelf("workloads"), Printing(json_, csv, markdown))


def profiles(json_: Json = False, csv: Csv = False, markdown: Markdown = False) -> None:
    """List the profiles that ship with the product."""
    _list(scenario_files.profiles(), Printing(json_, csv, markdown))


def _list(files: dict[str, Path], printing: Printing) -> None:
    rows = _sentences(files)
    if not printing.print(rows, lambda: named(rows)):
        listing.two_columns(rows)


def _sentences(files: dict[str, Path]) -> dict[str, str]:
    return {name: listing.first_comment(path) for name, path in files.items()}


def strategies(json_: Json = False, csv: Csv = False, markdown: Markdown = False) -> None:
    """List the strategies and their parameters with the defaults.

    --json and --csv list all parameters of each; otherwise those that many share come once, at the end.
    """
    from lockstep.strategies import STRATEGIES

    parameters = {
        name: {key: p.default for key, p in strategy.parameters.items()}
        for name, strategy in STRATEGIES.items()
    }
    rows = (
        {"strategy": name, "parameter": key, "default": default}
        for name, defaults in parameters.items()
        for key, default in defaults.items()
    )
    if Printing(json_, csv, markdown).print(parameters, lambda: rows):
        return
    lines: dict[str, str] = {}
    shared: dict[str, Parameter] = {}
    for name, strategy in STRATEGIES.items():
        own = strategy.own_parameters
        lines[name] = "\n".join(filter(None, [strategy.summary, listing.defaults(own)]))
        shared |= {key: p for key, p in strategy.parameters.items() if key not in own}
    listing.two_columns(lines)
    print()
    listing.paragraph(
        "Besides, for whatever has them: "
        f"{listing.defaults(shared)}. With a server: worker_loop, consistency and correction, each the "
        "name of the strategy to take it from. --json lists all parameters of each strategy; "
        "docs/strategies.md explains them."
    )


def systems(json_: Json = False, csv: Csv = False, markdown: Markdown = False) -> None:
    """List the systems of the articles and their scenarios.

    What each of them is, too; docs/systems.md has pictures, and published figures beside predicted ones.
    """
    from lockstep.studies.systems import SYSTEMS

    rows = [system.row() for system in SYSTEMS]
    if Printing(json_, csv, markdown).print(rows, lambda: rows):
        return
    parts = ("architecture", "consistency", "placement", "communication", "parallelism")
    texts = {
        system.name: [
            *(f"{part}: {getattr(system, part)}" for part in parts),
            *(f"lockstep simulate {scenario}" for scenario in system.scenarios),
        ]
        for system in SYSTEMS
    }
    listing.two_columns({name: "\n".join(lines) for name, lines in texts.items()})


def schema() -> None:
    """Print the JSON Schema of a scenario file.

    Editors complete and check scenario files with it.
    """
    import json

    from lockstep.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
