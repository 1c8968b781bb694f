"""Folders of runs in which something is wrong: each is read, or refused with one message."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st

import lockstep
from lockstep import ScenarioError
from lockstep.analysis import runs, saved
from lockstep.analysis.report import gather
from lockstep.analysis.timeline import write
from lockstep.replaying import ReplayDiffers
from lockstep.scenarios.document import parse, written
from lockstep.simulator.errors import SimulationError
from lockstep.studies.accuracy_suite import campaign
from lockstep.studies.accuracy_suite.comparing import compare
from lockstep.studies.accuracy_suite.summary import summarise
from tests.support import ROOT
from tests.support.command_line import Lockstep
from tests.support.laws import finite, keeps_the_laws, soon
from tests.support.mutations import contents, documents, tables, texts
from tests.support.nightly import so_many
from tests.support.replays import learning
from tests.support.scenarios import SIZES
from tests.support.tried import one_message

TRUTH = ROOT / "benchmarks" / "truth"
ALL = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a simulation that learned."""
    folder = tmp_path_factory.mktemp("simulated")
    lockstep.simulate(learning("asynchronous")).save(folder)
    return folder


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep."""
    folder = tmp_path_factory.mktemp("swept")
    file = folder / "scenario.yaml"
    file.write_text(SIZES + "sweep: {cluster.workers: [1, 2], strategy.name: [asynchronous, synchronous]}\n")
    lockstep.sweep(file, out=folder / "out", jobs=1)
    return folder / "out"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real run."""
    folder = tmp_path_factory.mktemp("measured")
    lockstep.run(learning("asynchronous", cluster__workers=2)).save(folder)
    return folder


def change(data: st.DataObject, folder: Path, name: str) -> str:
    file = folder / name
    content = file.read_bytes()
    as_bytes = data.draw(st.sampled_from([False, False, False, True]))
    if as_bytes:
        file.write_bytes(data.draw(contents(content)))
    elif file.suffix == ".parquet":
        data.draw(tables(pd.read_parquet(file))).to_parquet(file, index=False)
    elif file.suffix == ".json":
        file.write_text(
            json.dumps(data.draw(documents([json.loads(content)], {"": {"throughput": [0.0, None]}})))
        )
    elif file.suffix == ".yaml":
        text = content.decode()
        document = documents([parse(text, {})], {"cluster": {"workers": [1, 3]}}).map(written)
        file.write_text(data.draw(document | texts([text])), "utf-8", "surrogatepass")
    elif file.suffix == ".npy":
        array = np.load(file)
        np.save(
            file, data.draw(st.sampled_from([array[:-1], array.astype("U4"), array * np.nan, array[None]]))
        )
    return name


def copied(folder: Path, tmp_path: Path) -> Path:
    shutil.rmtree(tmp_path / "changed", ignore_errors=True)
    return Path(shutil.copytree(folder, tmp_path / "changed"))


def answered(ask: Callable[[], Any]) -> None:
    """It is done, or refused with one message."""
    with soon():
        try:
            ask()
        except ScenarioError as refused:
            event("refused")
            one_message(refused)
        else:
            event("done")


def looked_at(folder: Path) -> None:
    """What commands show of a run's folder: what was said of it then, and what is said of it now."""
    result = saved.load(folder)
    finite(json.loads(json.dumps(result.metrics, allow_nan=False)))
    assert repr(result)
    assert len(result.table)
    assert result.row
    vars(result).pop("metrics")
    keeps_the_laws(result)
    assert len(result.memory)
    assert result.curve is not None
    write([result], folder / "timeline.json")


PARTS = [
    "records.parquet",
    "records.parquet",
    "result.json",
    "scenario.yaml",
    "utilisation.parquet",
    "parameters.npy",
]


@pytest.mark.slow
@so_many(30, 1000, suppress_health_check=ALL)
@given(st.data())
def test_of_a_run(simulated: Path, tmp_path: Path, data: st.DataObject) -> None:
    folder = copied(simulated, tmp_path)
    change(data, folder, data.draw(st.sampled_from(PARTS)))
    answered(lambda: looked_at(folder))
    answered(lambda: lockstep.compare(simulated, folder).to_json())


@pytest.mark.slow
@so_many(4, 60, suppress_health_check=ALL)
@given(st.data())
def test_in_a_report(simulated: Path, tmp_path: Path, command: Lockstep, data: st.DataObject) -> None:
    folder = copied(simulated, tmp_path)
    change(data, folder, data.draw(st.sampled_from(PARTS)))
    with soon():
        for words in (["report", folder, "--no-why"], ["compare", simulated, folder], ["plot", folder]):
            ended = command(*words)
            assert ended.status in (0, 2), ended.err
            assert "Traceback" not in ended.err


@pytest.mark.slow
@pytest.mark.real
@so_many(12, 500, suppress_health_check=ALL)
@given(st.data())
def test_of_a_run_that_is_replayed(measured: Path, tmp_path: Path, data: st.DataObject) -> None:
    folder = copied(measured, tmp_path)
    change(data, folder, data.draw(st.sampled_from(["interleaving.parquet"] * 4 + PARTS[:4])))
    with soon():
        try:
            lockstep.replay(folder)
        except (ScenarioError, SimulationError, ReplayDiffers) as refused:
            event(type(refused).__name__)
            one_message(refused)


@pytest.mark.slow
@so_many(12, 300, suppress_health_check=ALL)
@given(st.data())
def test_of_a_sweep(swept: Path, tmp_path: Path, data: st.DataObject) -> None:
    folder = copied(swept, tmp_path)
    change(data, folder, data.draw(st.sampled_from(["results.parquet"] * 3 + ["scenario.yaml"])))
    answered(lambda: gather(folder))
    answered(lambda: runs.read([folder]))
    answered(lambda: lockstep.compare(swept, folder).to_json())


@pytest.mark.slow
@so_many(12, 300, suppress_health_check=ALL)
@given(st.data())
def test_of_the_suite(tmp_path: Path, data: st.DataObject) -> None:
    file = tmp_path / "measured.parquet"
    shutil.copy(TRUTH / file.name, file)
    change(data, tmp_path, file.name)
    predicted = campaign.load(TRUTH, "predicted.parquet")
    answered(lambda: finite(summarise(compare(campaign.load(tmp_path), predicted))))
