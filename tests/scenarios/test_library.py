"""Shipped clusters and workloads, and how a scenario takes them over and changes them."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from typer.testing import CliRunner

import lockstep
from lockstep import Scenario, ScenarioError
from lockstep.cli import app
from lockstep.scenarios import dump, load, override, points, shelf, shipped
from lockstep.schema import json_schema

CLUSTERS, WORKLOADS = shelf("clusters"), shelf("workloads")
SCENARIO = """\
cluster: {preset: ten-gigabit, workers: 4, network: {latency: 1 ms}}
workload: {preset: resnet-50, batch_size: 8}
strategy: all-reduce
stop: {steps: 2}
"""
OWN = """\
# A cluster of our own.
workers: 2
compute: {time: {distribution: empirical, file: times.csv}}
network: {bandwidth: 1 Gbit/s, topology: {kind: racks, hosts_per_rack: 1, uplink: 1 Gbit/s}}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a scenario, and a cluster that has a file of times beside it."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "own.yaml").write_text(OWN)
    (tmp_path / "parts" / "times.csv").write_text("0.5\n")
    (tmp_path / "one.yaml").write_text(SCENARIO)
    return tmp_path


@pytest.mark.parametrize(("cluster", "workload"), list(product(CLUSTERS, WORKLOADS)))
def test_every_cluster_runs_every_workload(cluster: str, workload: str) -> None:
    for strategy in ("all-reduce", "asynchronous"):
        changes = [f"cluster={cluster}", f"workload={workload}", f"strategy={strategy}", "stop={steps: 2}"]
        scenario = lockstep.load("sizes-only", [*changes, "cluster.servers.count=2"])  # few messages
        metrics = lockstep.simulate(scenario).metrics
        assert metrics["samples"] == 2 * scenario.cluster.workers * scenario.workload.batch_size
        assert 0 < metrics["efficiency"] <= 1


@pytest.mark.parametrize(
    ("workload", "batch", "alone", "measured", "errors"),
    [
        ("resnet-50", 128, 354.4, {8: 2719.07, 16: 5307.21, 32: 10632.33}, [0.04, 0.06, 0.06]),
        ("bert-base", 96, 149.84, {8: 1158.51, 16: 2257.71, 32: 4455.97}, [0.03, 0.05, 0.06]),
        ("bert-base", 32, 106.8, {8: 806.56, 16: 1090.2, 32: 1923.68}, [0.05, 0.52, 0.72]),
    ],
    ids=["pytorch", "oneflow", "tensorflow"],
)
def test_the_page_says_how_far_off_hundred_gigabit_is(
    workload: str, batch: int, alone: float, measured: dict[int, float], errors: list[float]
) -> None:
    """With the time of one device (DLPerf, August 2020: studies/published/tables/dlperf-2020.csv)."""
    compute = (
        f"cluster.compute={{time: {{distribution: constant, value: {batch / alone} s}}, backward: 0.67}}"
    )
    strategy = "strategy={name: all-reduce, buckets: 8}"
    found = []
    for count, samples_s in measured.items():
        changes = ["cluster=hundred-gigabit", f"workload={workload}", f"workload.batch_size={batch}", compute]
        scenario = lockstep.load(
            "sizes-only", [*changes, strategy, "stop={steps: 3}", f"cluster.workers={count}"]
        )
        found.append(lockstep.simulate(scenario).metrics["throughput"] / samples_s - 1)
    assert found == pytest.approx(errors, abs=0.006)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        (["cluster=ten-gigabit"], 16),
        (["cluster=ten-gigabit", "cluster.workers=8"], 8),
        (["cluster.preset=ten-gigabit", "cluster.servers.count=3"], 3),
        (["cluster=eight-gpus", "cluster.workers=4"], 4),
        (["cluster=hundred-gigabit", "cluster.workers=12"], 2),  # eight a host
        (["cluster=laptop", "cluster.workers=2"], 1),  # the one that the file says
        (["cluster.workers=5", "cluster.servers=hosts"], 5),
        (["cluster.workers=5", "cluster.workers_per_host=2", "cluster.servers={count: workers}"], 5),
    ],
)
def test_servers_follow_the_workers(changes: list[str], count: int) -> None:
    scenario = lockstep.load("resnet-50-ten-gigabit", [*changes, "sweep={}"])
    assert scenario.cluster.servers.count == count
    assert f"count: {count}\n" in dump(scenario)


def test_servers_follow_the_workers_of_each_point() -> None:
    scenario, expanded = points("resnet-50-ten-gigabit")
    assert scenario.cluster.servers.count == 16
    for changes, point in expanded:
        assert point.cluster.servers.count == changes["cluster.workers"]


def test_a_word_for_servers_that_is_none_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r": must be a whole number, or hosts or workers, not 'host'$"):
        lockstep.load("sizes-only", ["cluster.servers=host"])


@pytest.mark.parametrize("name", ["resnet-50-ten-gigabit", "bert-two-data-centres", "vgg-16-spot",
                                  "gpt-2-three-clusters"])  # fmt: skip
def test_whole_scenarios_answer(name: str) -> None:
    scenario = lockstep.load(name, ["stop={steps: 1}"])
    assert scenario.sweep
    assert lockstep.simulate(scenario).metrics["throughput"] > 0


@pytest.mark.slow
def test_the_counts_are_those_of_the_models() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from lockstep.workloads.torchvision_repair import import_torchvision

    models = import_torchvision().models
    for name, build in (("resnet-50", models.resnet50), ("vgg-16", models.vgg16)):
        workload = lockstep.load("sizes-only", [f"workload={name}"]).workload
        with torch.device("meta"):
            model = build()
            with FlopCounterMode(display=False) as counter:
                model(torch.empty(1, 3, 224, 224)).sum().backward()
        assert workload.parameters == sum(p.numel() for p in model.parameters())
        assert workload.flops == pytest.approx(counter.get_total_flops(), rel=2e-3)


@pytest.mark.parametrize(
    ("name", "words", "positions", "extra", "head"),
    [
        ("bert-base", 30_522, 512, 2 * 768 + 2 * 768 + 768 * 769, 0),  # segments, a norm, the pooler
        ("gpt-2", 50_257, 1024, 2 * 768, 2 * 768 * 50_257),  # the last norm; the head shares the embedding
    ],
)
def test_the_counts_are_those_of_transformers(
    name: str, words: int, positions: int, extra: int, head: int
) -> None:
    workload = lockstep.load("sizes-only", [f"workload={name}"]).workload
    h, layers, tokens = 768, 12, {"bert-base": 128, "gpt-2": 1024}[name]
    layer = 4 * (h * h + h) + (4 * h * h + 4 * h) + (4 * h * h + h) + 4 * h  # attention, MLP, two norms
    assert workload.parameters == (words + positions) * h + layers * layer + extra
    forward = tokens * (layers * (24 * h * h + 4 * tokens * h) + head)
    assert workload.flops == pytest.approx(3 * forward, rel=2e-3)


def test_what_the_scenario_says_wins_key_by_key(here: Path) -> None:
    shipped_ = load("quickstart", ["cluster=ten-gigabit"]).cluster
    scenario = load(here / "one.yaml")
    cluster, workload = scenario.cluster, scenario.workload
    assert (cluster.workers, cluster.network.latency) == (4, 1e-3)
    assert cluster.network.bandwidth == shipped_.network.bandwidth == 1.25e9
    assert cluster.compute == shipped_.compute
    assert (workload.parameters, workload.batch_size) == (25_557_032, 8)


def test_overrides_come_last_and_in_order(here: Path) -> None:
    def changed(*changes: str) -> Scenario:
        return load(here / "one.yaml", changes)

    scenario = changed("cluster=hundred-gigabit", "cluster.workers=16", "workload=vgg-16")
    assert (scenario.cluster.workers, scenario.cluster.workers_per_host) == (16, 8)
    assert scenario.cluster.network.latency == 1e-5  # the file's is gone with the file's cluster
    assert (scenario.workload.parameters, scenario.workload.batch_size) == (138_357_544, 64)
    scenario = changed("cluster.preset=hundred-gigabit", "workload.preset=vgg-16")
    assert (scenario.cluster.workers, scenario.cluster.network.latency) == (4, 1e-3)  # the file's stay
    assert (scenario.workload.parameters, scenario.workload.batch_size) == (138_357_544, 8)
    assert changed("cluster.workers=16", "cluster=hundred-gigabit").cluster.workers == 32
    assert changed("cluster.compute.efficiency=0.25").cluster.compute.peak == 15.7e12
    time = changed("cluster.compute.time={distribution: constant, value: 1 s}").cluster.compute
    assert (time.peak, time.time.value) == (None, 1.0)
    assert changed("cluster.preset=two-data-centres", "cluster.network.topology=star", "cluster.workers=5")


def test_presets_can_be_swept(here: Path) -> None:
    load(here / "one.yaml", ["sweep={cluster: [ten-gigabit, hundred-gigabit], workload.preset: [vgg-16]}"])
    both = "sweep={cluster.workers: [2, 3], cluster: [ten-gigabit, hundred-gigabit]}"  # in whatever order
    found = [scenario.cluster for _, scenario in points(here / "one.yaml", [both])[1]]
    assert [cluster.workers for cluster in found] == [2, 2, 3, 3]
    assert [cluster.workers_per_host for cluster in found] == [1, 8, 1, 8]
    with pytest.raises(ScenarioError, match=r"sweep.cluster\[1\]: no such cluster: 'fast'; give a file"):
        load(here / "one.yaml", ["sweep={cluster: [ten-gigabit, fast]}"])
    for key in ("cluster.preset", "workload.preset"):
        with pytest.raises(ScenarioError, match="give it to load as an override"):
            override(load(here / "one.yaml"), key, "spot")
    assert override(load(here / "one.yaml"), "workload", "vgg-16").workload.parameters == 138_357_544


def test_a_preset_can_be_a_file_of_ones_own(here: Path, monkeypatch: Any) -> None:
    scenario = load(here / "one.yaml", ["cluster=parts/own.yaml"])  # beside the scenario
    assert scenario.cluster.compute.time.times_s == (0.5,)  # beside the preset
    monkeypatch.chdir(here / "parts")
    assert load("quickstart", ["cluster=own.yaml"]).cluster.workers == 2
    sites = "cluster={preset: own.yaml, network: {topology: {kind: sites, hosts: [1, 1]}}}"
    assert load("quickstart", [sites]).cluster.network.topology.hosts == (1, 1)  # no mixture with racks


@pytest.mark.slow
def test_a_profile_is_beneath_a_preset(here: Path) -> None:
    both = load(here / "one.yaml", ["cluster.profile=cpu-epyc"]).cluster
    assert (both.memory_bandwidth, both.cores_per_host) == (700e9, 2)  # the first is the preset's
    assert both.compute.peak == 15.7e12


def test_the_resolved_scenario_names_no_preset(here: Path) -> None:
    loaded = load(here / "one.yaml")
    text = dump(loaded)
    assert "preset" not in text
    assert "ten-gigabit" not in text
    (here / "again.yaml").write_text(text)
    assert load(here / "again.yaml") == loaded


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("ten-gigabit", "ten-gigabti"), "1: cluster.preset: no such cluster: 'ten-gigabti'; give a file"),
        (("ten-gigabit", "ten-gigabti"), "shipped one; did you mean 'ten-gigabit'? (valid: eight-gpus, "),
        (("resnet-50", "resnet50"), "2: workload.preset: no such workload: 'resnet50'; give a file"),
        (("{preset: resnet-50, batch_size: 8}", "vgg"), "2: workload: no such workload: 'vgg'"),
        (("ten-gigabit", "3"), "1: cluster.preset: must be a file, or the name of a shipped cluster, not 3"),
        (("{preset: resnet-50, batch_size: 8}", "3"), "2: workload: must be a preset's name, or a mapping"),
        (("preset: ten", "present: ten"), "1: cluster.present: unknown key; did you mean 'preset'?"),
        (("workers: 4", "worker: 4"), "1: cluster.worker: unknown key; did you mean 'workers'?"),
        (("workers: 4", "workers: 0"), "1: cluster.workers: must be at least 1, not 0"),
        (("ten-gigabit", "two-data-centres"), "1: cluster.network.topology.hosts: "),
    ],
)  # fmt: skip
def test_mistakes_are_one_message_at_the_users_line(
    here: Path, change: tuple[str, str], message: str
) -> None:
    file = here / "one.yaml"
    file.write_text(SCENARIO.replace(*change))
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}:")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("workers: 2", "workers: two"), "2: workers: must be a whole number, not 'two'"),
        (("bandwidth", "bandwith"), "4: network.bandwith: unknown key; did you mean 'bandwidth'?"),
        (("workers: 2\n", ""), "1: workers: missing"),
        (("workers: 2", "workers: 2\npreset: laptop"), "3: preset: is taken over where a scenario names it"),
        (("times.csv", "gone.csv"), "3: compute.time.file: cannot read 'gone.csv'"),
        (("workers: 2", "workers: ["), "not valid YAML"),
    ],
)
def test_a_wrong_preset_is_told_with_both_files(here: Path, change: tuple[str, str], message: str) -> None:
    own = here / "parts" / "own.yaml"
    own.write_text(OWN.replace(*change))
    with pytest.raises(ScenarioError) as caught:
        load(here / "one.yaml", ["cluster.preset=parts/own.yaml"])
    assert str(caught.value).startswith(f"--set cluster.preset=parts/own.yaml: cluster.preset: {own}:")
    assert message in str(caught.value)


def test_editors_accept_the_forms() -> None:
    check = Draft202012Validator(json_schema())

    def wrong(**sections: Any) -> list[Any]:
        return list(check.iter_errors(YAML(typ="safe", pure=True).load(SCENARIO) | {"name": "x"} | sections))

    assert not wrong()
    assert not wrong(cluster="ten-gigabit", workload="vgg-16")
    assert not wrong(workload={"preset": "vgg-16", "dtype": "float16"})
    assert wrong(cluster={"workers": 4})
    assert wrong(cluster={"preset": "ten-gigabit", "worker": 4})
    assert wrong(cluster=3)
    assert wrong(workload={"batch_size": 4})
    assert wrong(workload={"preset": "vgg-16", "batch_sizes": 4})


def test_they_are_listed_with_what_they_are() -> None:
    def printed(*arguments: str) -> str:
        done = CliRunner().invoke(app(), arguments)
        assert done.exit_code == 0
        return done.stdout

    text = printed("scenarios")
    for name in (*CLUSTERS, *WORKLOADS):
        assert name in text
    assert list(json.loads(printed("scenarios", "--json"))) == list(shipped())
    for kind in ("clusters", "workloads"):
        listed = json.loads(printed(kind, "--json"))
        assert list(listed) == list(shelf(kind))
        assert all(sentence.endswith(".") for sentence in listed.values())
        assert not set(listed) & set(shipped())
