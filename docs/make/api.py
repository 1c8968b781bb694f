"""Writes docs/api.md, the page of the Python API, from docstrings, signatures and models: `make docs`.

Here is only what no docstring can say: the order, and what the parts have in common.
"""

import ast

import keys
from definitions import ROOT, brief, find, function, item, members, words

from lockstep.analysis.records import Recorder

PAGE = ROOT / "docs" / "api.md"
FRONT, RECORDS, KINDS = "lockstep/__init__.py", "analysis/result.py", "analysis/plots/kinds.py"
LIMITS, RESOURCE = "analysis/bottleneck.py", "strategies/resource.py"
RANKING, WHAT_IF = "lockstep/recommendation/ranking.py", "lockstep/recommendation/what_if.py"

ONE_RUN = ("load", "scenario", "model", "simulate", "why", "what_if", "run", "records", "validate", "replay")
MANY_RUNS = ("sweep", "recommend", "compare", "fit")
CHECKS = ("verify", "claims", "chaos")
ERRORS = {
    "lockstep.ScenarioError": ("scenarios/problem.py", "ScenarioError"),
    "lockstep.analysis.plots.Unfit": ("analysis/plots/series.py", "Unfit"),
    "lockstep.simulator.errors.SimulationError": ("simulator/errors.py", "SimulationError"),
    "lockstep.executor.launch.RunFailed": ("executor/launch.py", "RunFailed"),
    "lockstep.executor.launch.RunInterrupted": ("executor/launch.py", "RunInterrupted"),
    "lockstep.replaying.ReplayDiffers": ("lockstep/replaying.py", "ReplayDiffers"),
}
# Of each column of the records what it is, and its unit.
COLUMNS = {
    "event": "what happened: "
    + ", ".join(f"`{event}`" for event in Recorder().frame()["event"].cat.categories),
    "node": "rank of the node it happened on; −1: nobody's",
    "peer": "rank of the other one: the receiver of a message, the worker of an update or a drop; −1: nobody",
    "start": "s since the job started; the same as `end` of what takes no time",
    "left": "s; when the last byte of a message had left its sender; NaN if unknown, and of all else",
    "end": "s since the job started; of a message its arrival",
    "kind": "what a message is called (`push`, `pull`, …), `read` and `add` of shared memory, or what own "
    "work was: `apply`, `encode`, `decode`; else empty",
    "version": "updates before it (a drop: before its gradient); number of a gradient, collective; −1: none",
    "staleness": "versions, of an update; negative too where workers merge models of others; −1 of all else",
    "batches": "mini-batches in an update or a drop; 0 of all else",
    "nbytes": "bytes of the body of a message or collective, without headers; 0 of all else",
    "loss": "held-out loss of an evaluation; NaN of all else",
    "accuracy": "held-out accuracy of an evaluation, in [0, 1]; NaN of all else, and of what has none",
}
PICTURES = (
    ("against", "against"), ("scaling", "throughput"), ("scaling", "speedup"), ("target", "time_to_target"),
    ("curves", "learning"), ("staleness", "staleness_histogram"), ("staleness", "staleness_quantiles"),
    ("breakdown", "breakdown"), ("utilisation", "link_utilisation"), ("gantt", "gantt"),
    ("critical", "critical"), ("pipeline", "pipeline"),
    ("stragglers", "stragglers"), ("heatmap", "heat_map"), ("decision", "decision"), ("pareto", "pareto"),
    ("predicted", "predicted_against_measured"), ("comparison", "predicted_and_measured"),
    ("waterfall", "waterfall"), ("waterfall", "what_if"),
)  # fmt: skip

PROSE = """\
<!-- Written by `make docs` from docstrings; change those, or docs/make/api.py. -->
# The Python API

You can do from Python what the command line does. From a file to a picture:

```python
import lockstep
from lockstep.analysis import plots, table

scenario = lockstep.load("sizes-only", ["cluster.workers=4", "stop={steps: 20}"])
result = lockstep.simulate(scenario)  # or lockstep.run(scenario), with real processes
print(result)  # one line; result.table has the main metrics
print(result.metrics["throughput"], result.metrics["bottleneck"])
pushes = result.records.query("event == 'message' and kind == 'push'")
print((pushes["end"] - pushes["start"]).mean())  # seconds that a push takes

changes = ["stop={steps: 20}", "sweep={cluster.workers: [1, 2, 4]}"]
swept = lockstep.sweep(lockstep.load("sizes-only", changes), jobs=1)
print(table.intervals(swept, ["cluster.workers"], "speedup"))
figure = plots.speedup(swept)  # plots.save(figure, "results/speedup") writes it
```

[One run](#one-run) · [Task](#task) · [Result](#result) · [Many runs](#many-runs) · [Tables](#tables) ·
[Saved runs](#saved-runs) · [Pictures](#pictures) · [Checks](#checks) · [Errors](#errors) ·
[Scenario](#scenario)

**Units** are seconds, bytes, bytes/s, FLOP/s and samples everywhere in Python; only scenario files and
overrides have units in the text (`10 Gbit/s`). Ranks count the workers from 0, then the servers, then the
relays. Tables are pandas DataFrames. Lockstep now and then calls `progress`
with the fraction done, a float in [0, 1]. It prints nothing, and writes no file without `out`, `save` or
`to_…`.
"""
RESULT_WORDS = """\
`print` of it is one line; a notebook shows a table and a picture
([metrics.md](metrics.md#in-python-and-in-notebooks)).
"""
RECORDS_WORDS = """\
`result.records`, and `records.parquet`: a tidy table, in the order in which things ended. What each event has
is in [metrics.md](metrics.md#records-recordsparquet-resultrecords).
"""
PICTURE_WORDS = """\
`from lockstep.analysis import plots`. Each function returns a matplotlib `Figure`, in units that suit the
numbers, and opens no window. `table` is the table of a sweep, or made of `analysis.table.row`; `results` are
Results. `x`, `by` and `y` are columns of the table or ends of their names (`workers`). All raise `Unfit` for
runs that lack the data of the picture, and ScenarioError for a column that is not there.
[plots.md](plots.md) says how to read them, with examples.

The kinds of `lockstep plot`, `plots.KINDS` in Python:
"""
ERROR_WORDS = """\
Wrong input raises a ScenarioError. A run can also raise the errors below, or an OSError such as a full disk;
any other error is a defect of Lockstep.
"""
SCENARIO_WORDS = """\
A frozen pydantic model: `scenario.cluster.workers`, `scenario.strategy.parameters["learning_rate"]`. To get
a changed one, give `lockstep.load` overrides, or use `scenarios.override(scenario, "cluster.workers", 8)`,
which checks it; `model_copy(update=…)` does not, but everything that runs it will. `scenarios.dump(scenario)`
is the YAML that `load` reads back as equal. The classes named below are in `scenarios` and its modules.

In Python quantities are floats in the unit in brackets; in files they are texts with a unit. A key with the
default – may be left out, and is then `None`: unlimited, or not used. These pages explain the keys, with
examples: [cluster.md](cluster.md), [workload.md](workload.md), [strategies.md](strategies.md) (with the
parameters of every strategy) and [sweep.md](sweep.md). `lockstep schema` prints all of this as a JSON Schema.
"""


def page() -> str:
    """The whole page."""
    parts = [
        PROSE,
        "## One run\n",
        *_functions(ONE_RUN),
        "## Task\n",
        "`lockstep.Task`: " + words("workloads/task.py", "Task") + "\n",
        members("workloads/task.py", "Task"),
        "## Result\n",
        words(RECORDS, "Result") + " " + RESULT_WORDS,
        members(RECORDS, "Result"),
        f"`Bottleneck`: {words(LIMITS, 'Bottleneck')}\n",
        members(LIMITS, "Bottleneck"),
        f"`Remedy`: {words(LIMITS, 'Remedy')}\n",
        members(LIMITS, "Remedy"),
        f"`ResourceId`: {words(RESOURCE, 'ResourceId')}\n",
        members(RESOURCE, "ResourceId"),
        "`Gain`, of what `lockstep.why` returns: " + words("analysis/gains.py", "Gain") + "\n",
        members("analysis/gains.py", "Gain"),
        "`WhatIf`, of what `lockstep.what_if` returns: " + words("analysis/what_if.py", "WhatIf") + "\n",
        members("analysis/what_if.py", "WhatIf"),
        "`Step`: " + words("analysis/what_if.py", "Step") + "\n",
        members("analysis/what_if.py", "Step"),
        "### The records\n",
        RECORDS_WORDS,
        _records(),
        "## Many runs\n",
        *_functions(MANY_RUNS),
        "### What `recommend` returns\n",
        _recommendation(),
        "### What `fit` returns\n",
        _fit(),
        "## Tables\n",
        "`from lockstep.analysis import table`. Every column is in "
        "[metrics.md](metrics.md#the-tidy-table).\n",
        "".join(brief("analysis/table.py", name, f"table.{name}") for name in ("row", "keys", "intervals")),
        "## Saved runs\n",
        "`from lockstep.analysis import runs, saved, timeline`.\n",
        brief("analysis/timeline.py", "write", "timeline.write")
        + brief("analysis/saved.py", "load", "saved.load")
        + brief("analysis/runs.py", "read", "runs.read")
        + "\n`Runs` has of them:\n",
        members("analysis/runs.py", "Runs", ("table", "folders", "results")),
        "## Pictures\n",
        PICTURE_WORDS,
        _kinds(),
        _pictures(),
        "## Checks\n",
        *_functions(CHECKS),
        "## Errors\n",
        ERROR_WORDS,
        _errors(),
        "## Scenario\n",
        SCENARIO_WORDS,
        keys.tables(),
    ]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _functions(names: tuple[str, ...]) -> list[str]:
    return [function(FRONT, name, f"lockstep.{name}") for name in names]


def _records() -> str:
    types = Recorder().frame().dtypes
    rows = [f"| `{name}` | {types[name]} | {COLUMNS[name]} |" for name in types.index]
    return "\n".join(["| column | type | what, and its unit |", "|---|---|---|", *rows, ""])


def _recommendation() -> str:
    return "\n".join([
        words("lockstep/recommendation/__init__.py", "Recommendation").partition("\n\n")[0] + "\n",
        members("lockstep/recommendation/__init__.py", "Recommendation",
                ("best", "ranking", "table", "scenario_of", "own", "twins")),
        "`answers` has the what-ifs, a list of `Answer`; `gains` of the recommended candidates what a tenth "
        "more speed would save, lists of `Gain`; `left_out` says by name why one was not tried.\n",
        f"`Ranked`: {words(RANKING, 'Ranked')}\n",
        members(RANKING, "Ranked", ("candidate", "values", "mean", "half", "reached", "in_step", "average")),
        "`candidate.label` is the strategy and its settings in a line, `goal.unit` the unit of values.\n",
        f"`Answer`: {words(WHAT_IF, 'Answer')}\n",
        members(WHAT_IF, "Answer"),
    ])  # fmt: skip


def _fit() -> str:
    fitting = "lockstep/fitting/__init__.py"
    return "\n".join([
        words(fitting, "Fit") + "\n",
        members(fitting, "Fit", ("free", "rows", "identifiable", "flat", "noise", "scenario", "document")),
        f"`Found`: {words(fitting, 'Found')}\n",
        members(fitting, "Found"),
        f"`Together`: {words(fitting, 'Together')}\n",
        members(fitting, "Together"),
    ])  # fmt: skip


def _kinds() -> str:
    """`plots.KINDS`, read from the source too."""
    table = find(KINDS, "KINDS").value  # type: ignore[attr-defined]
    rows = []
    for kind, entry in zip(table.keys, table.values, strict=True):
        call, options = entry.elts
        drawn = next(node.id for node in ast.walk(call.args[0]) if isinstance(node, ast.Name)).strip("_")
        fixed = "".join(f", {each.arg}={ast.unparse(each.value)}" for each in call.keywords)
        takes = ", ".join(ast.literal_eval(options)) or "–"
        name = "against" if drawn == "metric" else drawn
        rows.append(f"| `{kind.value}` | `plots.{name}`{fixed} | {takes} |")
    return "\n".join(["| kind | drawn by | options |", "|---|---|---|", *rows, ""])


def _pictures() -> str:
    drawn = [brief(f"analysis/plots/{file}.py", name, f"plots.{name}") for file, name in PICTURES]
    by_kind = [brief(KINDS, name, f"plots.{name}") for name in ("draw", "pictures")]
    return "".join([*by_kind, brief("analysis/plots/style.py", "save", "plots.save"), *drawn])


def _errors() -> str:
    return "".join(item(public, words(*where)) for public, where in ERRORS.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
