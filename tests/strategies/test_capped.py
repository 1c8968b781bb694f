"""Pushes capped by a bandwidth: how many bytes go, which elements, and that none is lost."""

from typing import Any

import numpy as np
import pytest
import torch

import lockstep
from lockstep.job.arithmetic import OnTensors
from lockstep.strategies.capped import Cap, CappedEncoder
from lockstep.strategies.codecs import Codec, decode
from tests.support.nodes import at_once
from tests.support.scenarios import scenario

MLP = {"dataset": "digits", "model": "mlp", "batch_size": 16}
TEN_MS = {"time": {"distribution": "constant", "value": "10 ms"}}


def run(bytes_per_s: float, flush: int | None = None, **changes: Any) -> lockstep.Result:
    strategy = {"name": "ssp", "codec": "capped", "codec_bytes_per_s": bytes_per_s, "codec_flush": flush}
    usual: dict[str, Any] = {
        "strategy": strategy, "workload": MLP, "cluster__compute": TEN_MS, "cluster__network": {},
        "cluster__servers": 2, "stop": {"steps": 12},
    }  # fmt: skip
    return lockstep.simulate(scenario(**{**usual, **changes}))


def pushed(result: lockstep.Result) -> Any:
    records = result.records
    return records[(records["event"] == "message") & (records["kind"] == "push")]


def test_a_push_is_as_large_as_the_bandwidth_allows() -> None:
    """8 bytes an element, 10 ms a push, half of them to each of two servers."""
    sizes = pushed(run(80_000.0))["nbytes"]
    assert {*sizes} == {8 * (80_000 * 0.01 / 2 // 8)}


def test_all_that_is_left_goes_in_the_end_of_every_so_many() -> None:
    result = run(80_000.0, flush=4)
    whole = 4 * result.plan.sizes.parameters / 2
    for _, sent in pushed(result).groupby(["node", "peer"]):
        sizes = sent.sort_values("start")["nbytes"].to_numpy()
        assert sizes[3::4] == pytest.approx(whole, abs=4)
        assert (np.delete(sizes, np.s_[3::4]) == 400).all()


@pytest.mark.parametrize(("bytes_per_s", "flush"), [(1e12, None), (1.0, 1)])
def test_without_a_bound_it_is_nothing(bytes_per_s: float, flush: int | None) -> None:
    """A bandwidth that is never reached, or a flush with every push: as without a codec, bit for bit."""
    found, plain = run(bytes_per_s, flush), run(1.0, strategy="ssp")
    assert np.array_equal(found.parameters, plain.parameters)
    assert found.records.equals(plain.records)


class Clock:
    """A node whose time is given."""

    def __init__(self) -> None:
        self.now, self.arithmetic = 0.0, OnTensors(torch.zeros(6))

    async def encode(self, vector: Any, codec: Any) -> Any:
        return self.arithmetic.encode(vector, codec, 0)

    async def decode(self, body: Any, codec: Any, length: int) -> Any:
        return self.arithmetic.decode(body, codec, length)


def test_the_largest_go_first_and_the_rest_is_added_to_the_next() -> None:
    node: Any = Clock()
    encoder = CappedEncoder(node, Cap(32.0), share=0.5)
    vector, sent = torch.tensor([1.0, -6.0, 2.0, 5.0, -3.0, 4.0]), []
    for node.now in (1.0, 1.5, 2.0, 4.0):  # 16 bytes a second: two elements, one, one, all
        body = at_once(encoder.encode(vector))
        codec = Codec("capped").of(body, vector)
        sent.append(at_once(decode(node, body, codec, len(vector))))
        vector = torch.zeros(6)
    assert [part.tolist() for part in sent] == [
        [0, -6, 0, 5, 0, 0],
        [0, 0, 0, 0, 0, 4],
        [0, 0, 0, 0, -3, 0],
        [1, 0, 2, 0, 0, 0],
    ]


@pytest.mark.real
def test_real_pushes_are_capped_too() -> None:
    changes: dict[str, Any] = {
        "cluster__servers": 1,
        "stop": {"steps": 100},
        "cluster__network": {"latency": "1 ms"},
    }
    strategy = {"name": "ssp", "codec": "capped", "codec_bytes_per_s": 200_000.0}
    job = scenario(strategy=strategy, workload=MLP, cluster__compute=TEN_MS, **changes)
    measured = lockstep.run(job)
    sent = pushed(measured)
    most = 200_000.0 * measured.metrics["duration_s"] * job.cluster.workers
    assert sent["nbytes"].sum() == pytest.approx(most, rel=0.3)
    assert sent["nbytes"].median() < 4 * measured.plan.sizes.parameters
    assert measured.metrics["loss"] < 2.2
