"""Encoding and decoding take virtual time, on the node that does it: closed forms."""

from typing import Any, get_args

import numpy as np
import pytest

import lockstep
from lockstep.scenarios import dump
from lockstep.scenarios.machine import CodecName
from lockstep.strategies.codecs import NAMES
from tests.support.scenarios import scenario

COMPUTE, NBYTES = 10e-3, 4000
ENCODE, DECODE = NBYTES / 1e6, NBYTES / 2e6  # s, of all parameters
COSTS = {"1-bit": {"encode": "1 MB/s", "decode": "2 MB/s"}}


def round_s(strategy: dict[str, Any], workers: int, **cluster: Any) -> float:
    """Seconds from one update of the last server (or worker) to the next; messages take none."""
    changes = {f"cluster__{key}": value for key, value in cluster.items()}
    config = scenario(cluster__workers=workers, strategy=strategy, **changes)
    records = lockstep.simulate(config).records
    updates = records[records["event"] == "update"]
    updates = np.unique(updates.loc[updates["node"] == updates["node"].max(), "end"])
    assert len(updates) == 5
    return float(np.diff(updates).mean())


@pytest.mark.parametrize("feedback", [True, False])
def test_a_worker_encodes_and_the_server_decodes_one_after_the_other(feedback: bool) -> None:
    """With error feedback a worker decodes what it sends, too."""
    strategy = {"name": "synchronous", "codec": "1-bit", "error_feedback": feedback}
    expected = COMPUTE + ENCODE + feedback * DECODE + 3 * DECODE
    assert round_s(strategy, 3, codecs=COSTS) == pytest.approx(expected)
    assert round_s(strategy, 3) == pytest.approx(COMPUTE)  # what is not given costs nothing
    assert round_s(strategy, 3, codecs={"1-bit": {"encode": "1 MB/s"}}) == pytest.approx(COMPUTE + ENCODE)
    assert round_s({**strategy, "codec": "int8"}, 3, codecs=COSTS) == pytest.approx(COMPUTE)


def test_one_shard_travels_while_the_next_is_encoded() -> None:
    """The second of two shards leaves last; its server decodes both workers' halves."""
    strategy = {"name": "synchronous", "codec": "1-bit", "error_feedback": False}
    expected = COMPUTE + ENCODE + 2 * DECODE / 2
    assert round_s(strategy, 2, codecs=COSTS, servers=2) == pytest.approx(expected)


def test_without_a_server_everyone_decodes_everything() -> None:
    strategy = {"name": "all-reduce", "codec": "1-bit", "error_feedback": False}
    expected = COMPUTE + ENCODE + 4 * DECODE
    assert round_s(strategy, 4, codecs=COSTS) == pytest.approx(expected)


def test_decoding_and_updating_share_the_server() -> None:
    strategy = {"name": "synchronous", "codec": "1-bit", "error_feedback": False}
    costs = {"codecs": COSTS, "memory_bandwidth": "4 MB/s", "apply_overhead": "1 ms"}
    passes = 3 * 2  # theory.update_time, of two pushes
    expected = COMPUTE + ENCODE + 2 * DECODE + 1e-3 + passes * NBYTES / 4e6
    assert round_s(strategy, 2, **costs) == pytest.approx(expected)


def test_the_servers_processor_is_named_as_the_bottleneck() -> None:
    config = scenario(
        cluster__workers=8, cluster__codecs={"1-bit": {"decode": "400 kB/s"}},
        strategy={"name": "asynchronous", "codec": "1-bit", "error_feedback": False}, stop={"steps": 20},
    )  # fmt: skip
    assert lockstep.simulate(config).metrics["bottleneck"].startswith("server 0's processor")


def test_every_codec_can_have_a_cost() -> None:
    assert set(get_args(CodecName)) == set(NAMES) - {"none"}
    costs = {name: {"encode": "1 GB/s", "decode": "2 GB/s"} for name in get_args(CodecName)}
    config = scenario(cluster__codecs=costs)
    assert "1-bit:\n      encode: 1000000000.0 B/s" in dump(config)
    with pytest.raises(ValueError, match="'fp16', 'bf16', 'int8'"):
        scenario(cluster__codecs={"3-bit": {"encode": "1 GB/s"}})
