"""The published tables: what is written down, and the rules that were kept in choosing what is fitted."""

from itertools import accumulate

import pandas as pd
import pytest

from lockstep.scenarios.document import parse
from lockstep.studies.published import table as tables
from lockstep.studies.published.table import MOST_KEYS, MOST_ROWS, Table

ALL = [tables.read(name) for name in tables.names()]


@pytest.mark.parametrize("table", ALL, ids=lambda each: each.name)
def test_at_most_three_numbers_are_fitted_to_at_most_two_rows(table: Table) -> None:
    for series in tables.series_of(table):
        rows = int((series.facts["use"] == "fit").sum())
        assert 1 <= rows <= MOST_ROWS, series.name
        assert 1 <= len(series.free) <= min(rows, MOST_KEYS), series.name
        assert (series.facts["use"] == "predict").any(), series.name
    assert sum(len(series.facts) for series in tables.series_of(table)) == len(
        table.facts
    )  # none is left out


@pytest.mark.parametrize("table", ALL, ids=lambda each: each.name)
def test_every_row_says_what_it_is_for_and_causes_are_explained(table: Table) -> None:
    facts = table.facts
    assert set(facts["use"]) == {"fit", "predict"}
    assert {*facts["cause"]} - {""} == {*table.causes}
    assert (facts[table.measure].astype(float) > 0).all()
    assert table.comments[-1].startswith("Source: ")


FACTS = {  # some of what the sources say, typed here anew
    ("cscs-2017-inception-v3", "machine", "p2.xlarge-k80", "128"): 1077.59,
    ("tensorflow-2017-hosts", "model", "resnet-152", "64"): 981,
    ("ddp-2020", "model", "resnext-101", "16"): 0.450,
    ("dlperf-2020", "framework", "mxnet", "16"): 5684.68,
    ("csc-2024-resnet-50", "machine", "lumi", "16"): 7685.47,
    ("minerva-2015", "model", "vgg", "4"): 50.26,
    ("cntk-2016-lstm", "method", "bmuf", "64"): 43.65,
    ("nvidia-2020-transformer-xl", "machine", "dgx-2h", "16"): 222920,
    ("yuan-2022-all-reduce", "backend", "nccl", "32"): 0.252,
    ("torchtitan-2024-llama-3", "technique", "FSDP", "128"): 5605 * 128 / 8192,
    ("mosaicml-2023-mpt", "model", "13b", "128"): 252444 / 2048,
    ("paddle-2018-vgg-16", "framework", "v2", "80"): 853.30,
    ("sync-switch-2021", "runs", "ASP", "16"): 1 / 0.01227,
    ("mxnet-2017-hosts", "model", "resnet-152", "256"): 4630.42,
    ("nvidia-2022-bert-hosts", "precision", "tf32", "256"): 75706,
    ("bloom-2022-topologies", "days", "02-25 and 02-26", "192"): 112.50,
    ("dlperf-2021-gpt", "framework", "megatron", "32"): 0.68351,
}


@pytest.mark.parametrize("where", FACTS)
def test_facts_are_as_published(where: tuple[str, str, str, str]) -> None:
    name, label, value, workers = where
    table = tables.read(name)
    facts = table.facts
    devices = facts["devices" if "devices" in facts else "cluster.workers"]
    chosen = facts[(facts[label] == value) & (devices == workers)]
    assert float(chosen.iloc[0][table.measure]) == pytest.approx(FACTS[where], rel=1e-5)


def test_stages_of_amoebanet_are_as_its_layers_say() -> None:
    """Their shares of the FLOPs, and the mean of what crosses their boundaries."""
    with (tables.FOLDER / "amoebanet-layers.csv").open(encoding="utf-8") as file:
        layers = pd.read_csv(file, comment="#")
    flops, sent = layers["forward_flops"] + layers["backward_flops"], 4 * layers["output"]
    for _, row in tables.read("torchgpipe-amoebanet").facts.iterrows():
        ends = [*accumulate(map(int, row["layers_per_stage"].split()))]
        shares = [flops[a:b].sum() / flops.sum() for a, b in zip([0, *ends], ends, strict=False)]
        slow = [each["slowdown"] for each in parse(row["cluster.stragglers"], {})]
        assert slow == pytest.approx([share * len(ends) for share in shares], abs=1e-4)
        mean = sent[[end - 1 for end in ends[:-1]]].mean() * int(row["workload.batch_size"])
        assert float(row["workload.activation"].removesuffix(" B")) == pytest.approx(mean, abs=1)


def test_flops_of_megatron_are_as_its_formula_says() -> None:
    for _, row in tables.read("megatron-2022").facts.iterrows():
        s, h, layers = 2048, int(row["hidden"]), int(row["workload.layers"])
        forward = 24 * s * layers * h**2 * (1 + s / (6 * h) + 51_200 / (12 * h * layers))
        again = 4 * s**2 * h * layers * (row["recomputed"] == "attention")
        assert float(row["workload.flops"]) == pytest.approx(3 * forward + again, rel=1e-5)
        assert float(row["cluster.compute.backward"]) == pytest.approx(
            (2 * forward + again) / (3 * forward + again), abs=1e-5
        )


def test_bandwidths_of_streaming_diloco_are_between_too_little_and_enough() -> None:
    for _, row in tables.read("streaming-diloco-2025").facts.iterrows():
        middle = float(row["cluster.network.bandwidth"].removesuffix(" Gbit/s"))
        assert middle * 10 ** (2 / 49) == pytest.approx(float(row["needed_gbit_per_s"]), abs=0.11)
        seconds = float(row["cluster.compute.time.value"].removesuffix(" s"))
        assert float(row["step_s"]) == pytest.approx(
            100 * seconds / int(row["utilisation_percent"]), rel=1e-4
        )


def test_whole_variables_are_the_cause_where_their_server_carries_a_quarter_more() -> None:
    """The rule that was written down before anything was predicted; n hosts, S servers, M bytes."""
    for _, row in tables.read("cscs-2017-inception-v3").facts.iterrows():
        n, servers, whole, largest = int(row["cluster.workers"]), int(row["cluster.servers.count"]), 95.3, 8.2
        equal = n * whole / servers
        more = (max(equal, n * largest) + whole) / (equal + whole)
        assert (row["cause"] == "whole-variables") == (n > 1 and more > 1.25)


def test_steps_of_baskerville_are_of_the_same_data() -> None:
    for name in ("baskerville-2025-gpt-2", "baskerville-2025-gpt-2-large"):
        for _, row in tables.read(name).facts.iterrows():
            assert int(row["steps"]) * int(row["cluster.workers"]) == 2216
            assert float(row["step_s"]) == pytest.approx(float(row["epoch_s"]) / int(row["steps"]), abs=1e-5)


def test_rates_and_sizes_of_the_tables_that_came_last_are_as_their_sources_say() -> None:
    for _, row in tables.read("torchtitan-2024-llama-3").facts.iterrows():
        tokens = float(row["tokens_per_s_and_gpu"]) * int(row["cluster.workers"])
        assert float(row["throughput"]) == pytest.approx(tokens / 8192, abs=1e-4)
    for series in tables.series_of(tables.read("mosaicml-2023-mpt")):
        micro = series.facts["workload.batch_size"].astype(int) // series.facts[
            "parallelism.micro_batches"
        ].astype(int)
        (fitted,) = micro[series.facts["use"] == "fit"]
        assert [*(micro != fitted)] == [*(series.facts["cause"] == "micro-batch")]
        for _, row in series.facts.iterrows():
            assert float(row["throughput"]) == pytest.approx(float(row["tokens_per_s"]) / 2048, abs=1e-4)
            flops = 6 * int(row["workload.parameters"]) * 2048
            assert float(row["workload.flops"]) == pytest.approx(flops, rel=1e-5)
    for _, row in tables.read("yuan-2022-all-reduce").facts.iterrows():
        assert 4 * int(row["workload.parameters"]) == int(row["mib"]) * 2**20
        delay = float(row["limit"].split()[-2]) if row["limit"] != "none" else 0.0  # on top of 50 us
        assert parse(row["cluster.network.latency"], {}) in (
            f"{delay + 0.05:g} ms",
            f"{delay * 1e3 + 50:g} us",
        )
    for _, row in tables.read("sync-switch-2021").facts.iterrows():
        together = 1 if row["strategy.name"] == "asynchronous" else int(row["cluster.workers"])
        assert float(row["throughput"]) == pytest.approx(together / float(row["s_a_step"]), rel=1e-4)


def test_hosts_of_mxnet_are_workers_that_have_two_servers_each() -> None:
    for _, row in tables.read("mxnet-2017-hosts").facts.iterrows():
        devices, hosts = int(row["devices"]), int(row["cluster.workers"])
        assert hosts == max(1, devices // 16)
        assert int(row["cluster.servers.count"]) == 2 * hosts
        each = 512 if row["model"] == "alexnet" else 32
        assert int(row["workload.batch_size"]) * hosts == each * devices


def test_stages_of_gpt_have_their_shares_of_the_products_and_the_last_one_the_head_too() -> None:
    """A layer is computed forward twice, and backward, which is two more; the head forward once."""
    for _, row in tables.read("dlperf-2021-gpt").facts.iterrows():
        h, layers, stages = (int(row[key]) for key in ("hidden", "workload.layers", "parallelism.pipeline"))
        workers, slow = int(row["cluster.workers"]), parse(row["cluster.stragglers"] or "[]", {})
        assert bool(slow) == (stages > 1)
        forward = layers * (1 + 2048 / (6 * h)) + 51_200 / (12 * h)
        assert float(row["workload.flops"]) == pytest.approx(3 * 24 * 2048 * h**2 * forward, rel=1e-4)
        head = 51_200 / (12 * h) / (1 + 2048 / (6 * h))
        for each in slow:
            last = each["worker"] >= workers - workers // stages
            work = 4 * layers / stages + 3 * head * last
            share = work / (4 * layers + 3 * head)
            assert each["slowdown"] == pytest.approx(share * stages, abs=1e-4)


def test_a_mini_batch_of_alexnet_is_that_of_the_script_with_any_number_of_cards() -> None:
    for _, row in tables.read("mxnet-2015").facts.iterrows():
        cards = int(row["cluster.workers"])
        each = {"alexnet": 256 // cards, "inception-bn": 32 if row["library"] == "mxnet" else 16}
        assert int(row["workload.batch_size"]) == each[row["model"]]
        assert row["cluster.servers.colocated"] == str(cards == 1).lower()


def test_batches_of_bert_are_the_same_of_all_devices_together() -> None:
    together, one = {"128": 65_536, "512": 32_768}, {("128", "mixed"): 256, ("512", "tf32"): 16}
    for _, row in tables.read("nvidia-2022-bert-hosts").facts.iterrows():
        length, batch = row["sequence"], int(row["workload.batch_size"])
        assert batch * int(row["cluster.workers"]) == together[length]
        micro = batch // int(row["parallelism.micro_batches"])
        assert micro == one.get((length, row["precision"]), micro)
        assert float(row["workload.flops"]) == pytest.approx(6 * 330e6 * int(length), rel=1e-5)
        assert (row["workload.mixed"] == "true") == (row["precision"] == "mixed")


@pytest.mark.parametrize("name", ["bloom-2022-topologies", "dlperf-2021-gpt"])
def test_topologies_fill_their_devices_and_causes_follow_their_rule(name: str) -> None:
    """Written down before anything was predicted: rows whose products have the shapes of a fitted row."""
    sizes = {"181B": (14_336, 72), "182B": (13_824, 78)}
    for series in tables.series_of(tables.read(name)):
        fitted = {_shape(row) for _, row in series.facts[series.facts["use"] == "fit"].iterrows()}
        for _, row in series.facts.iterrows():
            stages, replicas = int(row["parallelism.pipeline"]), int(row["replicas"])
            inside, batch = int(row.get("parallelism.tensor", 1)), int(row["workload.batch_size"])
            assert replicas * inside * stages == int(row["cluster.workers"])
            if "tensor" in row:  # a worker is a group of devices
                group = int(row["tensor"])
                assert int(row["cluster.workers"]) * group == 384
                assert row["cluster.compute.peak"] == f"{312 * group} TFLOP/s"
                assert row["cluster.network.bandwidth"] == f"{50 * group} Gbit/s"
            assert batch == int(row["parallelism.micro_batches"]) * int(row["micro_batch"])
            assert replicas * batch == int(row.get("samples", replicas * batch))
            h, layers = sizes.get(str(row.get("model")), (int(row.get("hidden", 0)), 0))
            assert int(row["workload.activation"].removesuffix(" B")) == batch * 2048 * h * 2
            if layers:
                forward = 24 * 2048 * layers * h**2 * (1 + 2048 / (6 * h) + 250_000 / (12 * h * layers))
                assert float(row["workload.flops"]) == pytest.approx(3 * forward, rel=1e-5)
            assert (row["cause"] in ("", "within-host")) == (_shape(row) in fitted)


def _shape(row: "pd.Series[str]") -> tuple[str, ...]:
    return (row.get("hidden", ""), row.get("parallelism.tensor", ""), row["micro_batch"])
