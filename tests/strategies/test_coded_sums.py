"""What is encoded on more than the way to a server: sums around a ring, and a server's answers."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

import lockstep
from lockstep import ScenarioError
from lockstep.job.node import Node as RunningNode
from lockstep.strategies.codecs import SUMMABLE, Codec
from lockstep.strategies.collectives import ALGORITHMS
from lockstep.workloads import build, codecs, layouts
from tests.support.scenarios import scenario
from tests.support.worlds import learning

WORKERS = 8


# ------------------------------------------------------------------ sums


@pytest.mark.parametrize(
    ("codec", "expected"), [("none", 70.0), ("fp16", 35.0), ("bf16", 35.0), ("1-bit", 7 * (1.25 + 0.3125))]
)
def test_megabytes_a_worker_and_step_of_ten_million_parameters(codec: str, expected: float) -> None:
    """2(p−1)/p of the vector where codes can be summed; else its code to each of the p − 1 others."""
    steps = 2
    run = lockstep.simulate(
        scenario(
            cluster__workers=WORKERS, workload={"parameters": 10_000_000},
            strategy={"name": "all-reduce", "codec": codec}, stop={"steps": steps},
        )
    )  # fmt: skip
    assert run.metrics["bytes_sent"] / (WORKERS * steps * 1e6) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "auto"])
@pytest.mark.parametrize(("codec", "narrow"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_every_algorithm_sums_narrow_numbers(algorithm: str, codec: str, narrow: torch.dtype) -> None:
    """Near the step of the exact sum: each of at most p roundings is of half a unit in the last place."""
    strategy = {"name": "all-reduce", "algorithm": algorithm, "learning_rate": 1.0}
    found, exact = (
        lockstep.simulate(
            learning(cluster__workers=5, strategy={**strategy, "codec": each}, stop={"steps": 1})
        ).parameters
        for each in (codec, "none")
    )
    gradients = [build(learning().workload, 5, 3).gradient(torch.zeros(20), w, 0).abs() for w in range(5)]
    size = float(torch.stack(gradients).sum(0).max())
    assert not np.array_equal(found, exact)
    assert np.abs(found - exact).max() <= 5 * size / 5 * torch.finfo(narrow).eps


def test_what_can_be_summed_is_a_vector_of_as_many_numbers() -> None:
    for name in SUMMABLE:
        ((count, _),) = layouts.layout(Codec(name), 100)
        assert count == 100
        body = codecs.encode(torch.ones(100), Codec(name))
        assert codecs.decode(body[10:30] + body[30:50], Codec(name), 20).tolist() == [2.0] * 20


# ------------------------------------------------------------------ answers


@pytest.mark.parametrize("codec", ["fp16", "int8", "1-bit", "top-k", "random-k"])
@pytest.mark.parametrize("name", ["synchronous", "asynchronous", "agn", "bmuf"])
def test_answers_have_the_bytes_of_their_codec(name: str, codec: str) -> None:
    strategy = {"name": name, "answer_codec": codec, "codec_ratio": 0.1}
    run = lockstep.simulate(scenario(strategy=strategy, stop={"steps": 24}))
    messages = run.records[run.records["event"] == "message"]
    answers = messages[messages["kind"] == "parameters"]
    assert set(answers["nbytes"]) == {layouts.nbytes(Codec(codec, 0.1), 1000, 4)}
    assert set(messages[messages["kind"] == "push"]["nbytes"]) == {4000}


@pytest.mark.parametrize(
    "strategy", [{"name": "synchronous", "chunks": 3}, {"name": "asynchronous"}], ids=str
)
def test_an_answer_of_all_elements_is_the_parameters(strategy: dict[str, Any]) -> None:
    """Their difference from what is there, added to that: single precision rounds it twice, so 1e-6."""
    everything = {"answer_codec": "top-k", "codec_ratio": 1.0}
    coded, plain = (
        lockstep.simulate(learning(strategy={**strategy, **more, "learning_rate": 0.1}, stop={"steps": 12}))
        for more in (everything, {})
    )
    assert coded.parameters == pytest.approx(plain.parameters, abs=1e-6)


@pytest.mark.parametrize("codec", ["1-bit", "top-k", "random-k", "int8"])
def test_what_an_answer_leaves_out_comes_with_a_later_one(codec: str) -> None:
    """Once the server's parameters no longer change, what workers hold comes to them, whatever the codec."""
    target = torch.randn(20, generator=torch.Generator().manual_seed(1))
    left: list[float] = []

    async def gradient(self: RunningNode, parameters: torch.Tensor) -> torch.Tensor:
        left.append(float((parameters - target).norm() / target.norm()))
        await compute(self, parameters)
        return 0.0 * target if self.step > 1 else -target

    compute = RunningNode.gradient
    strategy = {"name": "asynchronous", "answer_codec": codec, "codec_ratio": 0.2, "learning_rate": 1.0}
    with mock.patch.object(RunningNode, "gradient", gradient):
        lockstep.simulate(learning(cluster__workers=1, strategy=strategy, stop={"steps": 60}))
    assert left[0] == 1.0
    assert left[-1] < 1e-4


@pytest.mark.slow
def test_both_ways_learn_and_send_a_thirtieth() -> None:
    """CNTK's 1-bit, both ways: digits are learned, with 1/32 of the bits and the levels of each block."""
    runs = {
        way: lockstep.simulate(
            scenario(
                workload={"dataset": "digits", "model": "mlp", "batch_size": 16},
                strategy={"name": "synchronous", "learning_rate": 0.1, **codecs_of},
                stop={"steps": 60},
            )
        ).metrics
        for way, codecs_of in (
            ("plain", {}),
            ("both", {"codec": "1-bit", "answer_codec": "1-bit"}),
        )
    }
    assert runs["both"]["bytes_sent"] < runs["plain"]["bytes_sent"] / 24
    assert runs["both"]["accuracy"] > 0.9 * runs["plain"]["accuracy"]


def test_relays_hand_down_what_nobody_has_encoded() -> None:
    with pytest.raises(ScenarioError, match="neither be encoded"):
        lockstep.simulate(
            scenario(
                strategy={"name": "synchronous", "answer_codec": "int8"},
                cluster__servers={"hierarchy": {"groups": 2}},
            )
        )


# ------------------------------------------------------------------ what must not be encoded


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "adagrad"])
def test_a_mean_square_that_is_averaged_is_not_encoded(optimizer: str) -> None:
    """Its deltas, encoded, lead below 0, and its root is no number."""
    strategy = {"name": "model-averaging", "optimizer": optimizer, "optimizer_state": "average"}
    with pytest.raises(ScenarioError, match="may turn negative on its way") as caught:
        lockstep.simulate(learning(strategy={**strategy, "codec": "1-bit"}))
    assert caught.value.key == "strategy.codec"
    for fine in ({"codec": "none"}, {"codec": "1-bit", "optimizer_state": "keep"}):
        assert np.isfinite(lockstep.simulate(learning(strategy={**strategy, **fine})).parameters).all()
    momentum = {**strategy, "optimizer": "momentum", "codec": "1-bit"}
    assert np.isfinite(lockstep.simulate(learning(strategy=momentum)).parameters).all()
