"""`cluster.profile`: what was measured, beneath what the scenario says."""

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from typer.testing import CliRunner

import lockstep
from lockstep import ScenarioError
from lockstep.cli import app
from lockstep.scenarios import dump, load, override, profiles
from lockstep.scenarios.profile import is_of, read
from lockstep.schema import json_schema

PROFILE = """\
profile: 1
measured: {date: 2026-11-21, where: testbed}
cluster:
  network: {latency: 95 us, message_overhead: 40 us, burst: {size: 8 KiB, line_rate: 1 GB/s}}
  apply_overhead: 30 us
  memory_bandwidth: 8 GB/s
  codecs: {1-bit: {encode: 300 MB/s, decode: 900 MB/s}}
  cores_per_host: 2
compute:
  - workload: {dataset: digits, model: cnn, batch_size: 64}
    compute: {time: {distribution: constant, value: 7 ms}}
  - workload: {dataset: digits, model: cnn}
    compute: {time: {distribution: empirical, file: times.csv}, backward: 0.6}
intervals: {network.latency: [90 us, 99 us]}
evidence: {anything: [1, 2]}
"""
SCENARIO = """\
cluster:
  workers: 2
  profile: measured.yaml
  network: {bandwidth: 100 MB/s, latency: 1 ms}
  codecs: {1-bit: {encode: 100 MB/s}, int8: {decode: 1 GB/s}}
workload: {dataset: digits, model: cnn, learning: false}
strategy: asynchronous
stop: {steps: 2}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a profile and a scenario that names it."""
    (tmp_path / "times.csv").write_text("0.01\n0.03\n")
    (tmp_path / "measured.yaml").write_text(PROFILE)
    (tmp_path / "one.yaml").write_text(SCENARIO)
    return tmp_path


def test_what_the_scenario_says_wins_key_by_key(here: Path) -> None:
    cluster = load(here / "one.yaml").cluster
    network = cluster.network
    assert (network.bandwidth, network.latency, network.message_overhead) == (1e8, 1e-3, 40e-6)
    assert network.burst is not None
    assert network.burst.line_rate == 1e9
    assert (cluster.apply_overhead, cluster.memory_bandwidth, cluster.cores_per_host) == (30e-6, 8e9, 2)
    assert cluster.codecs["1-bit"].model_dump() == {"encode": "100000000.0 B/s", "decode": "900000000.0 B/s"}
    assert cluster.codecs["int8"].decode == 1e9


def test_compute_is_that_of_the_first_workload_that_fits(here: Path) -> None:
    compute = load(here / "one.yaml").cluster.compute
    assert compute.backward == 0.6
    assert compute.time.times_s == (0.01, 0.03)  # the file is beside the profile
    compute = load(here / "one.yaml", ["workload.batch_size=64"]).cluster.compute
    assert compute.time.value == 7e-3
    compute = load(here / "one.yaml", ["cluster.compute.backward=0"]).cluster.compute
    assert compute.time.times_s == (0.01, 0.03)
    assert compute.backward == 0
    own = "cluster.compute={time: {distribution: constant, value: 1 s}}"
    assert load(here / "one.yaml", [own]).cluster.compute.backward is None
    assert load(here / "one.yaml", ["cluster.compute=measured"]).cluster.compute == "measured"


def test_a_time_is_of_float32_unless_it_says_otherwise(here: Path) -> None:
    with pytest.raises(ScenarioError, match="no time for this workload"):
        load(here / "one.yaml", ["workload.precision=bf16"])
    other = PROFILE.replace("model: cnn, batch_size: 64", "model: cnn, precision: bf16")
    (here / "measured.yaml").write_text(other)
    assert load(here / "one.yaml", ["workload.precision=bf16"]).cluster.compute.time.value == 7e-3
    assert load(here / "one.yaml").cluster.compute.time.times_s == (0.01, 0.03)


def test_the_time_of_one_loader_is_that_of_any_number() -> None:
    one = {"task": "my:f", "loaders": 1}
    assert is_of(one, {"task": "my:f", "loaders": 3, "batch_size": 8})
    assert not is_of(one, {"task": "my:f", "loaders": 0})
    assert not is_of({"task": "my:f"}, {"task": "my:f", "loaders": 3})
    assert not is_of({"task": "my:f"}, {"task": "my:f", "compile": True})


def test_overrides_and_sweeps_reach_the_profile(here: Path) -> None:
    (here / "other.yaml").write_text(PROFILE.replace("95 us", "5 us").replace("30 us", "3 us"))
    changed = load(here / "one.yaml", ["cluster.profile=other.yaml", "cluster.apply_overhead=1 us"])
    assert (changed.cluster.apply_overhead, changed.cluster.memory_bandwidth) == (1e-6, 8e9)
    load(here / "one.yaml", ["sweep={cluster.profile: [measured.yaml, other.yaml]}"])
    with pytest.raises(ScenarioError, match=r"sweep.cluster.profile\[1\]: no such profile: 'third.yaml'"):
        load(here / "one.yaml", ["sweep={cluster.profile: [measured.yaml, third.yaml]}"])
    with pytest.raises(ScenarioError, match="give it to load as an override"):
        override(changed, "cluster.profile", "other.yaml")


def test_the_resolved_scenario_means_the_same_without_the_profile(here: Path) -> None:
    loaded = load(here / "one.yaml")
    text = dump(loaded)
    assert "profile" not in text
    (here / "measured.yaml").unlink()
    (here / "resolved.yaml").write_text(text)
    assert load(here / "resolved.yaml") == loaded


def test_a_profile_is_beside_the_scenario_or_in_the_current_folder(here: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(here)
    bare = ["cluster.profile=measured.yaml", "workload.learning=false", "strategy=asynchronous"]
    assert load("quickstart", bare).cluster.apply_overhead == 30e-6
    predicted = lockstep.simulate(lockstep.load("quickstart", [*bare, "stop={steps: 3}"]))
    assert predicted.metrics["updates"] == 12


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("95 us", "95"), 4, "cluster.network.latency: 95 has no unit"),
        (("latency", "latncy"), 4, "cluster.network.latncy: unknown key; did you mean 'latency'?"),
        (("profile: 1", "profile: 2"), 1, "profile: must be 1, not 2"),
        (("profile: 1\n", ""), 1, "profile: missing"),
        (("cores_per_host: 2", "workers: 2"), 8, "cluster.workers: unknown key"),
        (("value: 7 ms", "valu: 7 ms"), 11, "unknown key; did you mean 'value'?"),
        (("times.csv", "gone.csv"), 13, "cannot read 'gone.csv'"),
        (("cluster:", "cluster: ["), 3, "not valid YAML: the [ is not closed"),
    ],
)
def test_a_bad_profile_is_one_message_with_both_files(
    here: Path, change: tuple[str, str], line: int, message: str
) -> None:
    (here / "measured.yaml").write_text(PROFILE.replace(*change))
    with pytest.raises(ScenarioError) as caught:
        load(here / "one.yaml")
    said = str(caught.value)
    assert said.startswith(f"{here / 'one.yaml'}:3: cluster.profile: {here / 'measured.yaml'}:{line}: "), said
    assert message in said
    assert "\n" not in said


def test_a_profile_that_is_not_there_and_a_time_that_it_does_not_have(here: Path) -> None:
    with pytest.raises(ScenarioError, match=r"one.yaml:3: cluster.profile: no such profile: 'nope'; give"):
        load_text(here, SCENARIO.replace("measured.yaml", "nope"))
    with pytest.raises(ScenarioError, match=r"cluster.profile: must be a file, .*, not 3"):
        load_text(here, SCENARIO.replace("measured.yaml", "3"))
    with pytest.raises(ScenarioError) as caught:
        load_text(here, SCENARIO.replace("model: cnn", "model: mlp"))
    said = str(caught.value)
    assert "one.yaml:1: cluster.compute: missing; the profile has no time for this workload" in said
    assert "{dataset: digits, model: cnn, batch_size: 64}" in said
    with pytest.raises(ScenarioError, match=r"one.yaml:6: workload.model: must not be empty"):
        load_text(here, SCENARIO.replace("model: cnn", "model: ''"))


def load_text(here: Path, text: str) -> Any:
    (here / "one.yaml").write_text(text)
    return load(here / "one.yaml")


def test_the_schema_for_editors_knows_profiles(here: Path) -> None:
    check = Draft202012Validator(json_schema())
    document = YAML(typ="safe", pure=True).load(SCENARIO) | {"name": "x"}
    assert not list(check.iter_errors(document))
    del document["cluster"]["profile"]
    assert list(check.iter_errors(document))  # no compute
    document["cluster"]["compute"] = "measured"
    assert not list(check.iter_errors(document))
    document["cluster"]["codecs"] = {"3-bit": {}}
    assert list(check.iter_errors(document))


@pytest.mark.parametrize("name", profiles())
def test_shipped_profiles_load_and_are_listed(name: str) -> None:
    found = read(profiles()[name])
    assert {"date", "host", "torch"} <= found.measured.keys()
    scenario = load("quickstart", [f"cluster.profile={name}"])
    assert scenario.cluster.memory_bandwidth == found.cluster.memory_bandwidth
    done = CliRunner().invoke(app(), ["profiles"])
    assert name in done.stdout
    assert "Measured on" in done.stdout


def test_some_are_shipped() -> None:
    assert profiles()
