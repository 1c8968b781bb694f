"""Layers from profiles: PipeDream's graph.txt, and what calibrate writes."""

from pathlib import Path

import pytest

import lockstep
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.workload import valid_workload
from lockstep.workloads import sizes
from lockstep.workloads.cutting import cut
from lockstep.workloads.layers import kept, layers
from lockstep.workloads.published import graph

FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")


def node(name: str, about: str, *values: object) -> str:
    said = ", ".join(f"{key}={value}" for key, value in zip(FIELDS, values, strict=True))
    return f"{name} -- {about} -- {said}\n"


PLAIN = (  # of mini-batches of 20
    node("in", "Input0", "0.000", "0.000", "800.000", "0.000")
    + node("one", "Linear(10 -- 20)", 1.0, 2.0, 1600.0, 880.0)
    + node("two", "ReLU()", 0.5, 0.5, "[800.0; 800.0]", 0.0)
    + node("three", "Linear", 4.0, 9.0, 80.0, 84.0)
    + "\tin -- one\n\tone -- two\n\ttwo -- three\n"
)


def written(folder: Path, text: str) -> Path:
    file = folder / "graph.txt"
    file.write_text(text)
    return file


def test_a_chain(tmp_path: Path) -> None:
    found = graph(written(tmp_path, PLAIN), 20)
    assert [layer.name for layer in found] == ["in Input0…two ReLU", "three Linear"]
    assert [layer.parameters for layer in found] == [220, 21]
    assert [layer.forward_s for layer in found] == [1.5e-3, 4e-3]
    assert [layer.backward_s for layer in found] == [2.5e-3, 9e-3]
    assert [layer.output for layer in found] == [20, 0]  # elements a sample
    assert [layer.saved for layer in found] == [10 + 20 + 20, 20 + 1]
    assert kept(found) == 10 + 20 + 20 + 1


def test_its_time_is_its_work(tmp_path: Path) -> None:
    text = node("a", "", 1, 2, 4, 400) + node("b", "", 1, 1, 4, 4) + node("c", "", 4, 9, 4, 4)
    found = graph(written(tmp_path, text + "\ta -- b\n\tb -- c\n"), 1)
    assert cut(found, 2, "time") == cut(found, 2, "flops") == (0, 2, 3)
    assert cut(found, 2, "parameters") == (0, 1, 3)


def test_branches_are_one_layer(tmp_path: Path) -> None:
    text = "".join(node(name, "Conv2d", 1.0, 1.0, 4.0, 4.0) for name in "abcdef")
    for edge in ("ab", "bc", "bd", "ce", "de", "ef"):
        text += f"\t{edge[0]} -- {edge[1]}\n"
    found = graph(written(tmp_path, text), 1)
    assert [layer.name for layer in found] == ["a Conv2d", "b Conv2d", "c Conv2d…e Conv2d", "f Conv2d"]
    assert [layer.parameters for layer in found] == [1, 1, 3, 1]


def test_it_is_a_workload(tmp_path: Path) -> None:
    written(tmp_path, PLAIN)
    workload = valid_workload({"graph": "graph.txt", "batch_size": 20}, {"folder": tmp_path})
    found = sizes(workload)  # type: ignore[arg-type]
    assert (found.parameters, found.itemsize, found.flops, found.samples) == (241, 4, None, None)
    assert not workload.learns  # type: ignore[attr-defined]
    scenario = lockstep.load(
        "sizes-only", [f"workload={{graph: {tmp_path / 'graph.txt'}, batch_size: 20}}", "stop.steps=3"]
    )
    assert lockstep.simulate(scenario).metrics["updates"] > 0
    split = lockstep.load(
        "sizes-only",
        [
            f"workload={{graph: {tmp_path / 'graph.txt'}, batch_size: 20}}",
            *("parallelism={pipeline: 2}", "strategy=all-reduce", "stop={steps: 3}"),
            *("cluster={workers: 2, compute: {time: {distribution: constant, value: 17 ms}}}",),
        ],
    )
    # two micro-batches: forward on both stages, the slow one's second passes, and the way back
    assert lockstep.simulate(split).metrics["duration_s"] == pytest.approx(3 * (0.75 + 2 * 6.5 + 1.25) * 1e-3)
    table = lockstep.model("sizes-only", [f"workload={{graph: {tmp_path / 'graph.txt'}}}"], stages=2)
    assert table["layers"][0]["forward_s"] == 1.5e-3


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("nonsense\n", 1, "must be a node, 'node1 -- Linear -- forward_compute_time=1.0, …', or an edge"),
        (PLAIN + "\tone -- four\n", 8, "there is no four in the file"),
        (PLAIN.replace("=4.0", "=four"), 4, "forward_compute_time must be a number that is 0 or more"),
        (PLAIN.replace("=4.0", "=-4.0"), 4, "forward_compute_time must be a number that is 0 or more"),
        (PLAIN.replace("=4.0", "=nan"), 4, "forward_compute_time must be a number that is 0 or more"),
        (PLAIN.replace(", parameter_size=84.0", ""), 4, "parameter_size is missing"),
        (PLAIN + "\tthree -- one\n", None, "its edges go round in a circle"),
        ("\n", None, "has no nodes; give a profile such as PipeDream's graph.txt"),
    ],
)
def test_what_is_no_profile(text: str, line: int | None, said: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ScenarioError) as caught:
        graph(file, 1)
    assert said in caught.value.problem
    assert (caught.value.file, caught.value.line) == (str(file), line)


def test_a_profile_that_is_not_there() -> None:
    with pytest.raises(ScenarioError, match="workload.graph: no such profile: 'none.txt'"):  # noqa: RUF043
        lockstep.load("sizes-only", ["workload={graph: none.txt}"])


def test_times_that_calibrate_has_measured() -> None:
    """The shipped profile has them of cnn on digits."""
    document = {"dataset": "digits", "model": "cnn", "layer_times": "cpu-epyc"}
    found = layers(valid_workload(document, {}))  # type: ignore[arg-type]
    assert len(found) == 5
    assert found[0].forward_s == pytest.approx(117.3e-6 + 16.72e-6)  # a convolution and its ReLU
    assert found[0].backward_s == pytest.approx(165.2e-6 + 15.66e-6)
    assert all(layer.seconds for layer in found)


@pytest.mark.parametrize("other", [{"model": "mlp"}, {"model": "cnn", "precision": "bf16"}])
def test_times_of_another_model_or_precision(other: dict[str, str]) -> None:
    document = {"dataset": "digits", "layer_times": "cpu-epyc", **other}
    with pytest.raises(ScenarioError, match="has no times of this model's layers") as caught:
        layers(valid_workload(document, {}))  # type: ignore[arg-type]
    assert caught.value.key == "workload.layer_times"
