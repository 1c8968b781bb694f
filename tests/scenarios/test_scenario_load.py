import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from lockstep.scenarios import (
    Cluster,
    Compute,
    Data,
    Empirical,
    Problem,
    Scenario,
    ScenarioError,
    Servers,
    Sizes,
    dump,
    load,
    override,
    shipped,
)
from lockstep.scenarios.units import TIME
from tests.support.nightly import examples

WHOLE = """\
name: whole
cluster:
  workers: 4
  servers: 2
  network: {bandwidth: 100 Mbit/s, latency: 200 us}
  compute: {time: {distribution: constant, value: 30 ms}}
  stragglers:
    - {worker: 3, slowdown: 3}
workload: {dataset: digits}
strategy: {name: downpour, communication_window: 5}
stop: {epochs: 10}
"""


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.yaml"
    path.write_text(WHOLE)
    return path


def test_a_file_becomes_floats_in_base_units(whole: Path) -> None:
    scenario = load(whole)
    assert scenario.cluster.network.bandwidth == 12.5e6
    assert scenario.cluster.network.latency == 2e-4
    assert scenario.cluster.servers == Servers(count=2, colocated=False)
    assert scenario.cluster.stragglers[0].slowdown == 3.0
    assert isinstance(scenario.workload, Data)
    assert scenario.workload.learns
    assert scenario.strategy.parameters == {"communication_window": 5}


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_scenario_loads_by_name_and_survives_a_round_trip(name: str, tmp_path: Path) -> None:
    scenario = load(name)
    assert scenario == load(f"{name}.yaml") == load(shipped()[name])
    assert scenario.name == Path(name).name
    (tmp_path / "again.yaml").write_text(dump(scenario))
    assert load(tmp_path / "again.yaml") == scenario


def test_the_quickstart_says_what_the_design_says() -> None:
    scenario = load("quickstart")
    assert (scenario.cluster.workers, scenario.seed, scenario.strategy.name) == (4, 7, "downpour")
    assert scenario.sweep["zip"]["strategy.name"] == ["synchronous", "asynchronous", "downpour", "all-reduce"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("25_600_000", 25_600_000), ("010", 10), ("yes", "yes"), ("2024-05-01", "2024-05-01")],
)
def test_scalars_are_those_of_yaml_1_2(whole: Path, text: str, value: Any) -> None:
    assert load(whole, [f"strategy.x={text}"]).strategy.parameters["x"] == value


def test_a_name_is_the_stem_where_none_is_given(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(WHOLE.removeprefix("name: whole\n"))
    assert load(tmp_path / "mine.yaml").name == "mine"


@pytest.mark.parametrize(
    ("change", "look", "value"),
    [
        ("cluster.workers=8", lambda s: s.cluster.workers, 8),
        ("cluster.network.goodput=0.9", lambda s: s.cluster.network.goodput, 0.9),
        (
            "cluster.compute.time={distribution: constant, value: 1 s}",
            lambda s: s.cluster.compute.time.mean_s,
            1,
        ),
        ("cluster.compute=measured", lambda s: s.cluster.compute, "measured"),
        ("cluster.stragglers[0].slowdown=2", lambda s: s.cluster.stragglers[0].slowdown, 2.0),
        ("cluster.servers.colocated=true", lambda s: s.cluster.servers, Servers(count=2, colocated=True)),
        ("cluster.servers={count: 3}", lambda s: s.cluster.servers.count, 3),
        ("strategy.name=ring", lambda s: s.strategy.parameters, {"communication_window": 5}),
        ("strategy=ring", lambda s: s.strategy.parameters, {}),
        ("strategy.codec.bits=8", lambda s: s.strategy.parameters["codec"], {"bits": 8}),
        ("sweep.cluster.workers=[4, 8]", lambda s: s.sweep, {"cluster.workers": [4, 8]}),
        ("name=a=b", lambda s: s.name, "a=b"),
    ],
)
def test_overrides(whole: Path, change: str, look: Any, value: object) -> None:
    assert look(load(whole, [change])) == value


def test_overrides_make_the_mappings_that_miss_and_the_last_one_wins(whole: Path) -> None:
    text = WHOLE.replace("  network: {bandwidth: 100 Mbit/s, latency: 200 us}\n", "  network:\n")
    whole.write_text(text)
    changes = ["cluster.network.latency=1 ms", "cluster.network.latency=2 ms", "strategy=x", "strategy.k=1"]
    scenario = load(whole, changes)
    assert scenario.cluster.network.latency == 2e-3
    assert scenario.strategy.parameters == {"k": 1}


def test_override_in_python(whole: Path) -> None:
    scenario = load(whole)
    ring = override(scenario, "strategy.name", "ring")
    assert (ring.strategy.name, ring.strategy.parameters) == ("ring", {"communication_window": 5})
    assert override(scenario, "cluster.network.bandwidth", "1 B/s").cluster.network.bandwidth == 1.0
    assert override(ring, "strategy.name", "downpour") == scenario
    with pytest.raises(ScenarioError, match=r"^cluster\.workers: must be at least 1, not 0$"):
        override(scenario, "cluster.workers", 0)


def test_check_sees_the_scenario_and_each_swept_value_and_is_located(whole: Path) -> None:
    seen = []

    def check(scenario: Scenario) -> None:
        seen.append((scenario.strategy.name, scenario.cluster.workers))
        if scenario.strategy.name == "bad":
            raise ScenarioError("unknown strategy", "strategy.name")
        if scenario.cluster.workers == 99:
            raise ScenarioError("too few shards", "cluster.servers.count")

    load(whole, ["sweep={strategy.name: [a, b], cluster.workers: [5]}"], check)
    assert seen == [("downpour", 4), ("a", 4), ("b", 4), ("downpour", 5)]
    with pytest.raises(ScenarioError, match=r"whole\.yaml:4: cluster\.servers\.count: too few shards$"):
        load(whole, ["cluster.workers=99"], check)
    with pytest.raises(ScenarioError, match=r"^--set strategy.name=bad: strategy\.name: unknown strategy$"):
        load(whole, ["strategy.name=bad"], check)
    whole.write_text(WHOLE + "sweep:\n  strategy.name:\n    - a\n    - bad\n")
    with pytest.raises(ScenarioError, match=r"yaml:15: sweep\.strategy\.name\[1\]: unknown strategy$"):
        load(whole, check=check)


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("{distribution: constant, value: 1 s}", 1),
        ("{distribution: uniform, low: 1 s, high: 3 s}", 2),
        ("{distribution: exponential, mean: 2 s}", 2),
        ("{distribution: shifted-exponential, shift: 1 s, mean: 2 s}", 3),
        ("{distribution: lognormal, mean: 2 s, cv: 1}", 2),
        ("{distribution: gamma, mean: 2 s, cv: 0.5}", 2),
        ("{distribution: pareto, mean: 2 s, shape: 1.5}", 2),
    ],
)
def test_every_distribution_knows_its_mean(whole: Path, text: str, mean: float) -> None:
    compute = load(whole, [f"cluster.compute.time={text}"]).cluster.compute
    assert isinstance(compute, Compute)
    assert compute.time is not None
    assert compute.time.mean_s == mean


def test_an_empirical_file_is_found_beside_the_scenario(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    (whole.parent / "times.csv").write_text("0.5\n\n1.5\n")
    scenario = load(whole, ["cluster.compute.time={distribution: empirical, file: times.csv}"])
    assert isinstance(scenario.cluster.compute, Compute)
    time = scenario.cluster.compute.time
    assert isinstance(time, Empirical)
    assert time.file == str(whole.parent / "times.csv")
    assert (time.times_s, time.mean_s) == ((0.5, 1.5), 1.0)


def test_the_three_forms_of_workload(whole: Path) -> None:
    sizes = load(whole, ["workload={parameters: 10}", "stop={steps: 1}"]).workload
    assert isinstance(sizes, Sizes)
    assert (sizes.learns, sizes.dtype, sizes.batch_size) == (False, "float32", 32)
    problem = load(whole, ["workload={problem: quadratic, learning: false}", "stop={steps: 1}"]).workload
    assert isinstance(problem, Problem)
    assert (problem.learns, problem.dimension, problem.noise) == (False, 20, 0.1)


def test_a_scenario_is_frozen_and_can_be_built_in_python() -> None:
    cluster = Cluster(workers=2, servers=1, compute="measured")
    scenario = Scenario(
        name="x", cluster=cluster, workload=Data(dataset="fake"), strategy="ring", stop={"steps": 3}
    )
    assert scenario.strategy.name == "ring"
    with pytest.raises(ValueError, match="frozen"):
        scenario.seed = 3  # type: ignore[misc]


def test_the_json_schema_accepts_the_short_forms() -> None:
    definitions = Scenario.model_json_schema()["$defs"]
    assert definitions["Strategy"]["anyOf"][0]["type"] == "string"
    count, words = definitions["Servers"]["anyOf"][0]["anyOf"]
    assert (count["type"], words["enum"]) == ("integer", ["hosts", "workers"])
    assert definitions["Network"]["additionalProperties"] is False


@pytest.mark.slow
def test_the_room_needs_no_other_room() -> None:
    others = [
        "lockstep.strategies",
        "lockstep.workloads",
        "lockstep.simulator",
        "lockstep.analysis",
        "torch",
        "pandas",
    ]
    load_one = "import sys; from lockstep import scenarios; scenarios.load('quickstart')"
    script = f"{load_one}; sys.exit(bool(set(sys.modules) & set({others})))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


_number = st.floats(min_value=1e-300, max_value=1e300)
_s = st.floats(*TIME.bounds).map(lambda value: f"{value!r} s")
_scalar = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | _number | st.text(max_size=20)
_value = st.recursive(
    _scalar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
_time = st.one_of(
    st.fixed_dictionaries({"distribution": st.just("constant"), "value": _s}),
    st.fixed_dictionaries({"distribution": st.just("gamma"), "mean": _s, "cv": st.floats(1e-6, 100)}),
    st.fixed_dictionaries({"distribution": st.just("pareto"), "mean": _s, "shape": st.floats(1.5, 9)}),
)
_scenario = st.fixed_dictionaries(
    {
        "name": st.text(min_size=1, max_size=20),
        "cluster": st.fixed_dictionaries(
            {
                "workers": st.integers(1, 100_000),
                "compute": st.just("measured") | st.fixed_dictionaries({"time": _time}),
                "network": st.fixed_dictionaries({"latency": _s}),
                "stragglers": st.just([{"worker": 0, "slowdown": 2}]) | st.just([]),
            }
        ),
        "workload": st.just({"problem": "logistic"})
        | st.fixed_dictionaries({"parameters": st.integers(1, 10**15)}),
        "strategy": st.dictionaries(st.text(max_size=9), _value, max_size=3).map(lambda d: d | {"name": "x"}),
        "stop": st.fixed_dictionaries({"time": _s}),
        "sweep": st.dictionaries(st.just("strategy.k"), st.lists(_value, min_size=1, max_size=3)),
    }
)


@pytest.mark.slow
@examples(1.5, suppress_health_check=list(HealthCheck))
@given(document=_scenario)
def test_what_dump_writes_load_reads_back(document: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    scenario = Scenario.model_validate(document)
    file = tmp_path_factory.getbasetemp() / "dumped.yaml"
    file.write_text(dump(scenario), "utf-8")
    assert load(file) == scenario


def test_a_count_may_be_written_with_an_exponent() -> None:
    assert load("sizes-only", ["workload.parameters=350e6"]).workload.parameters == 350_000_000
    with pytest.raises(ScenarioError, match="whole number"):
        load("sizes-only", ["workload.parameters=1.5"])
