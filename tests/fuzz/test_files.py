"""Files that a scenario names, with mistakes of all kinds in them: profiles, traces, measured times."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from lockstep.scenarios import profiles
from lockstep.scenarios.document import written
from tests.support.mutations import contents, documents, known_keys, texts
from tests.support.nightly import so_many
from tests.support.tried import simulated

ALL = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
SCENARIO = """\
cluster:
  workers: 3
  servers: 2
  network: {bandwidth: 100 MB/s}
  COMPUTE
  STRAGGLERS
  FAULTS
workload: {dataset: digits, model: cnn, batch_size: 32, learning: false}
strategy: asynchronous
recovery: {checkpoint: {every: 3 updates}, on_failure: restart}
stop: {steps: 4, time: 100 s}
"""
CONSTANT = "compute: {time: {distribution: constant, value: 10 ms}}"
PROFILE: dict[str, Any] = {
    "profile": 1,
    "measured": {"date": "2026-11-21", "where": "testbed"},
    "bandwidth": "1 GB/s",
    "cluster": {
        "network": {
            "latency": "95 us",
            "message_overhead": "40 us",
            "burst": {"size": "8 KiB", "line_rate": "1 GB/s"},
        },
        "apply_overhead": "30 us",
        "memory_bandwidth": "8 GB/s",
        "codecs": {"1-bit": {"encode": "300 MB/s", "decode": "900 MB/s"}},
        "cores_per_host": 2,
    },
    "compute": [
        {
            "workload": {"dataset": "digits", "model": "cnn", "batch_size": 64},
            "compute": {"time": {"distribution": "constant", "value": "7 ms"}},
        },
        {
            "workload": {"dataset": "digits", "model": "cnn"},
            "compute": {"time": {"distribution": "gamma", "mean": "7 ms", "cv": 0.1}, "backward": 0.6},
        },
    ],
    "fitted": {"cluster.network.bandwidth": "90 MB/s", "cluster.stragglers[0].slowdown": 2},
    "intervals": {"network.latency": ["90 us", "99 us"]},
    "evidence": {"anything": [1, 2]},
}
SHIPPED = [YAML(typ="safe", pure=True).load(file.read_text("utf-8")) for file in profiles().values()]
SLOW = "0, 1\n0.01, 3\n\n0.05, 1.5\n2, 10\n"
GONE = "0.01, 1, down\n0.02, 0, down\n0.03, 1, up\n0.1, 0, up\n0.2, 1, down\n0.25, 1, up\n"
TIMES = "0.01\n0.03\n\n2e-2\n"


def event(name: str, start: float, dur: float, category: str = "cpu_op", **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": dur, "pid": 1, "tid": 1, **more}


PROFILED = {
    "schemaVersion": 1,
    "traceEvents": [
        made
        for step, at in enumerate((0.0, 20_000.0))
        for made in (
            event(f"ProfilerStep#{step}", at, 15_000, "user_annotation"),
            event("aten::linear", at + 10, 3_000),
            event("cudaLaunchKernel", at + 20, 5, "cuda_runtime", args={"correlation": step}),
            event("gemm", at + 40, 2_000, "kernel", args={"correlation": step}),
            event("autograd::engine::evaluate_function: AddBackward", at + 4_000, 6_000),
            event("cudaLaunchKernel", at + 4_020, 5, "cuda_runtime", args={"correlation": 10 + step}),
            event("gemm", at + 5_000, 3_000, "kernel", args={"correlation": 10 + step}),
            event("Optimizer.step#SGD.step", at + 11_000, 2_000),
        )
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def naming(folder: Path, compute: str = CONSTANT, stragglers: str = "", faults: str = "") -> Path:
    """A scenario in the folder, which names other files."""
    text = SCENARIO.replace("COMPUTE", compute).replace("STRAGGLERS", stragglers).replace("FAULTS", faults)
    (folder / "scenario.yaml").write_text(text)
    return folder / "scenario.yaml"


@pytest.mark.slow
@so_many(20, 800, suppress_health_check=ALL)
@given(documents([PROFILE, PROFILE, *SHIPPED], known_keys([PROFILE, *SHIPPED])))
def test_profiles(folder: Path, profile: Any) -> None:
    (folder / "changed.yaml").write_text(written(profile), "utf-8")
    simulated(naming(folder, "profile: changed.yaml"))


@pytest.mark.slow
@so_many(10, 500, suppress_health_check=ALL)
@given(texts([SLOW]), st.sampled_from(["", ", repeat: 10 s", ", worker: 1", ", host: 0, repeat: 3 s"]))
def test_traces_of_stragglers(folder: Path, text: str, more: str) -> None:
    (folder / "slow.csv").write_text(text, "utf-8", "surrogatepass")
    simulated(naming(folder, stragglers=f"stragglers: [{{trace: slow.csv{more}}}]"))


@pytest.mark.slow
@so_many(10, 700, suppress_health_check=ALL)
@given(texts([GONE]))
def test_traces_of_faults(folder: Path, text: str) -> None:
    (folder / "gone.csv").write_text(text, "utf-8", "surrogatepass")
    simulated(naming(folder, faults="detect: 5 ms\n  faults: [{trace: gone.csv}]"))


@pytest.mark.slow
@so_many(10, 300, suppress_health_check=ALL)
@given(texts([TIMES]))
def test_measured_times(folder: Path, text: str) -> None:
    (folder / "times.csv").write_text(text, "utf-8", "surrogatepass")
    simulated(naming(folder, "compute: {time: {distribution: empirical, file: times.csv}}"))


@pytest.mark.slow
@so_many(10, 500, suppress_health_check=ALL)
@given(
    documents(
        [PROFILED, PROFILED["traceEvents"]], {"traceEvents": {"dur": [-5], "ts": [-1.0, "x"], "args": [7]}}
    )
)
def test_profilers_traces(folder: Path, trace: Any) -> None:
    (folder / "trace.json").write_text(json.dumps(trace))
    simulated(naming(folder, "compute: {time: {distribution: empirical, file: trace.json}}"))


@pytest.mark.slow
@so_many(10, 200, suppress_health_check=ALL)
@given(contents(gzip.compress(json.dumps(PROFILED).encode(), mtime=0)))
def test_packed_profilers_traces(folder: Path, packed: bytes) -> None:
    (folder / "trace.json.gz").write_bytes(packed)
    simulated(naming(folder, "compute: {time: {distribution: empirical, file: trace.json.gz}}"))
