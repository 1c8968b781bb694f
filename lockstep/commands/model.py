"""`lockstep model`."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import typer

from lockstep import scenarios
from lockstep.commands.options import Set, Trust
from lockstep.printing import Csv, Json, Markdown, Printing

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A scenario, a workload that 'lockstep workloads' lists, or a model such as resnet50.",
    ),
]
Stages = Annotated[
    int | None,
    typer.Option(min=1, metavar="P", help="Cut it into so many stages; not given: as the scenario is."),
]
By = Annotated[
    Literal["flops", "parameters", "time", "memory"] | None,
    typer.Option(help="What the largest stage is to have least of; flops if not given. With --stages only."),
]


def model(
    name: Name,
    stages: Stages = None,
    by: By = None,
    set_: Set = None,
    trust: Trust = False,
    json_: Json = False,
    csv: Csv = False,
    markdown: Markdown = False,
) -> None:
    """Show a model's layers, and where a cut into stages falls.

    Without --stages it is the cut of the scenario's parallelism. Also work, depth and W/D: docs/models.md
    says what all that is. A model by its name is one for the images of digits (mlp, cnn) or of cifar10;
    --set workload.dataset=mnist takes others.
    """
    printing = Printing(json_, csv, markdown)
    from lockstep.model_table import table

    with scenarios.placing(name, set_ or []):
        found = table(name, set_ or [], stages, by)
    if not printing.print(found, lambda: found["layers"]):
        _show(found)


def _show(found: dict[str, Any]) -> None:
    from lockstep import terminal
    from lockstep.analysis.words import number, percent, size

    timed = any(layer["forward_s"] is not None for layer in found["layers"])
    title = f"{found['model']}: {found['parameters']:,} parameters; of one sample:"
    heads = ["layer", "parameters", "forward", "backward", "activation", "saved"]
    shown = terminal.titled(title, "layer")
    for head in [*heads[1:], *(["time"] if timed else []), *(["stage"] if "stages" in found else [])]:
        shown.add_column(head, justify="right")
    for layer in found["layers"]:
        times = [layer["forward_s"], layer["backward_s"]]
        shown.add_row(
            layer["layer"],
            f"{layer['parameters']:,}",
            *(_or_dash(_flop, layer[key]) for key in ("forward_flops", "backward_flops")),
            *(_or_dash(size, layer[key]) for key in ("activation_bytes", "saved_bytes")),
            *([" + ".join(number(1e3 * each, "ms") if each is not None else "–" for each in times)] * timed),
            *([str(layer["stage"])] if "stage" in layer else []),
        )
    terminal.show_table(shown)
    if "stages" in found:
        shown = terminal.titled(f"Cut {_how(found['by'])}; of a whole mini-batch:", "stage", "layers")
        for head in ("parameters", "work", "activation", "memory"):
            shown.add_column(head, justify="right")
        for stage in found["stages"]:
            ends = [stage["first"], stage["last"]]
            shown.add_row(
                str(stage["stage"]),
                " to ".join(dict.fromkeys(ends)),
                f"{stage['parameters']:,} ({percent(stage['parameters'] / found['parameters'])})",
                percent(stage["flops"] / found["flops"] if found["flops"] else None),
                size(found["batch_size"] * stage["activation_bytes"]),
                size(stage["memory_bytes"]),
            )
        terminal.show_table(shown)
    if "whole" in found:
        print(f"{found['whole']}. A gradient takes {_flop(found['flops'])} a sample.")
    if found["depth"] is not None:
        print(
            f"A gradient of {found['batch_size']} samples: work W = {found['work']:.4g} operations, "
            f"depth D = {found['depth']:,} steps, W/D = {found['parallelism']:.4g}"
        )


def _how(by: str | Sequence[int]) -> str:
    return f"by {by}" if isinstance(by, str) else f"before layers {', '.join(map(str, by))} (from 0)"


def _or_dash(said: Callable[[float], str], value: float | None) -> str:
    return "–" if value is None else said(value)


def _flop(value: float) -> str:
    for unit, name in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP")):
        if value >= unit:
            return f"{value / unit:.4g} {name}"
    return f"{value:.4g} FLOP"
