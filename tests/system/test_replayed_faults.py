"""Real runs in which processes fail, repeated in the simulator life after life: the same bits in the end."""

from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

import lockstep
from lockstep.analysis import streams
from lockstep.executor.interleaving import DurableInterleaving
from lockstep.job.incarnation import FIRST, Incarnation, Saved
from lockstep.job.plan import Plan
from lockstep.scenarios.loading import made
from lockstep.simulator.events import Timeout
from lockstep.simulator.replay import Life, Replay
from lockstep.simulator.replayed_port import Divergence, Span
from lockstep.strategies import STRATEGIES
from lockstep.studies.chaos.invariants import broken
from tests.support.failing import CRASH, HANG, LINK, PARTITION, SERVER, document
from tests.support.nightly import drawn

WARNED = {"worker": 1, "at": "1500 ms", "notice": "700 ms", "back_after": "100 ms"}
SELDOM = {"checkpoint": {"every": "50 updates"}, "on_failure": "restart"}
LATER = SERVER | {"at": "6 s"}
JOIN = {"workers": {"add": 1}, "at": "1 s"}
SPARE = {"checkpoint": {"every": "7 updates"}, "on_failure": "spare"}
ON = {"recovery": {"checkpoint": {"every": "5 updates"}, "on_failure": "continue"}, "stop": {"time": "4 s"}}
WAIT = ON | {"recovery": {"checkpoint": {"every": "5 updates"}, "on_failure": "wait"}}
TWO = {"cluster": {"servers": 2, "workers": 3}, "strategy": "ssp"}
UNEQUAL = {"stop": {"steps": 28}, "cluster": {"stragglers": [{"worker": 1, "slowdown": 3}]}}
THREE = {"cluster": {"workers": 3}, "stop": {"steps": 50}}
SUMS = {**THREE, "strategy": {"name": "all-reduce", "optimizer": "adam", "buckets": 2}}
LOCAL = {"name": "diloco", "averaging_period": 5}
FRAGMENTS = {"name": "streaming-diloco", "averaging_period": 6, "fragments": 3, "overlap": 1}
CHANGES = {"name": "adacomm", "averaging_period": 6, "interval_s": 0.5}
AFTER_SUMS = {"name": "post-local-sgd", "averaging_period": 5, "switch_step": 30, "buckets": 2}
FOUR = {"cluster": {"workers": 4}, "stop": {"steps": 40}}
# two are back while the process of the third is being started
AT_ONCE = [
    CRASH | {"worker": 0, "at": "601 ms", "back_after": "1051 ms"},
    HANG | {"at": "615 ms", "hang_for": "344 ms"},
    HANG | {"worker": 3, "at": "676 ms", "hang_for": "837 ms"},
]
# each is alone for a while, and begins with a checkpoint of both
TURNS = [
    CRASH | {"at": "1 s", "back_after": "3500 ms"},
    CRASH | {"worker": 0, "at": "2500 ms", "back_after": "5 s"},
    CRASH | {"at": "6 s", "back_after": "20 s"},
]
# who is alone last makes fewer rounds than who was before it, whose rounds are given up
FEWER = [TURNS[0], TURNS[1] | {"back_after": "5400 ms"}, TURNS[2]]
ALONE = {"strategy": {"name": "local-sgd", "averaging_period": 1}, "stop": {"time": "9 s"}}
NOBODY = [CRASH | {"worker": who, "at": at, "back_after": None} for who, at in ((1, "1 s"), (0, "1800 ms"))]
# who is at a mini-batch of the common pool begins anew, and that is its own still
POOLED = {"cluster": {"workers": 3}, "stop": {"steps": 40}}
GOSSIP = {"name": "gossip", "probability": 0.5}
ANEW = {"recovery": {"on_failure": "continue"}}
SHORT = CRASH | {"back_after": "1 s"}
CASES: dict[str, dict[str, Any]] = {
    "worker, then server": {"faults": [CRASH, LATER], "recovery": SPARE, "stop": {"time": "9 s"}},
    "no time is left": {"faults": [CRASH | {"back_after": "5 s"}], "stop": {"time": "3500 ms"}},
    "stands still": {"faults": [HANG], "strategy": "downpour"},
    "a link": {"faults": [LINK], "strategy": "ssp"},
    "a warning": {"faults": [WARNED], "recovery": SELDOM},
    "no checkpoint": {"faults": [CRASH], "recovery": {"on_failure": "restart"}},
    "checkpoints only": {"faults": []},
    "a worker joins": {"faults": [JOIN], "recovery": {"on_failure": "stop"}, "stop": {"time": "3 s"}},
    "a worker joins sums": {"faults": [JOIN], **ON, "strategy": {"name": "all-reduce", "algorithm": "ring"}},
    "by sums": {"faults": [CRASH], "strategy": {"name": "all-reduce", "algorithm": "ring"}},
    "gossip": {"faults": [CRASH], "strategy": "gossip", "stop": {"steps": 50}, "cluster": {"workers": 3}},
    "others go on": {"faults": [SHORT], **ON},
    "others wait": {"faults": [SHORT], "strategy": "synchronous", **WAIT},
    "others go on without who stands still": {"faults": [HANG], **ON},
    "others go on without who is cut off": {"faults": [LINK | {"down_for": "1 s"}], **ON},
    "a server alone": {"faults": [SERVER], **ON},
    "a server from the beginning": {"faults": [SERVER], **ON, "recovery": {"on_failure": "continue"}},
    "both, of two servers": {"faults": [CRASH, SERVER | {"at": "2 s"}], **TWO, **ON, "stop": {"time": "5 s"}},
    "both, and all wait": {"faults": [CRASH, SERVER | {"at": "2 s"}], **TWO, **WAIT, "stop": {"time": "5 s"}},
    "a server after who has ended": {"faults": [SERVER | {"at": "2 s"}], **ON, **UNEQUAL},
    "others go on without who does not come back": {"faults": [CRASH | {"back_after": None}], **ON},
    "a slow exit": {"faults": [SHORT | {"exits_after": "200 ms"}], **ON},
    "a common pool": {"faults": [CRASH], **ON, "stop": {"epochs": 2}},
    "peers go on": {"faults": [SHORT], **ON, "strategy": GOSSIP, **THREE},
    "peers go on without who stands still": {"faults": [HANG], **ON, "strategy": "ad-psgd", **THREE},
    "peers wait": {"faults": [SHORT], **WAIT, "strategy": "ad-psgd", **THREE},
    "peers go on for good": {"faults": [CRASH | {"back_after": None}], **ON, "strategy": "ako", **THREE},
    "peers take over": {"faults": [SHORT], **ON, **ANEW, "strategy": GOSSIP, **THREE},
    "peers in rounds": {"faults": [SHORT], **ON, "strategy": "d-psgd", **THREE},
    "peers push halves": {"faults": [SHORT], **ON, "strategy": "sgp", **THREE},
    "peers push halves late": {"faults": [HANG], **ON, "strategy": "osgp", **THREE},
    "sums go on": {"faults": [SHORT], **ON, **SUMS},
    "sums go on from a checkpoint": {"faults": [SHORT | {"worker": who} for who in range(3)], **ON, **SUMS},
    "sums go on without who stands still": {"faults": [HANG | {"worker": 0}], **ON, **SUMS},
    "sums behind gradients go on": {"faults": [SHORT], **ON, **SUMS, "strategy": "pipe-sgd"},
    "averages go on": {"faults": [SHORT], **ON, **SUMS, "strategy": LOCAL},
    "fragments go on": {"faults": [SHORT], **ON, **SUMS, "strategy": FRAGMENTS},
    "fragments wait": {"faults": [SHORT | {"worker": 0}], **WAIT, **SUMS, "strategy": FRAGMENTS},
    "averages whose period changes": {"faults": [SHORT], **ON, **SUMS, "strategy": CHANGES},
    "averages after sums": {"faults": [SHORT | {"worker": 0}], **WAIT, **SUMS, "strategy": AFTER_SUMS},
    "averages that others have given up": {"faults": TURNS, **ON, **ALONE},
    "more averages were given up than there are": {"faults": FEWER, **ON, **ALONE},
    "sums and nobody is left": {"faults": NOBODY, **ON, **SUMS, "cluster": {"workers": 2}},
    "averages and nobody is left": {"faults": NOBODY, **ON, **ALONE},
    "sums wait": {"faults": [SHORT], **WAIT, **SUMS},
    "peers come back at the same time": {"faults": AT_ONCE, **ON, "strategy": "d-psgd", **FOUR},
    "passes go on": {"faults": [SHORT], **ON, "parallelism": {"micro_batches": 2}, "strategy": "synchronous"},
    "passes of sums go on": {"faults": [HANG], **ON, **SUMS, "parallelism": {"micro_batches": 2}},
    "slices go on": {"faults": [SHORT], **ON, "strategy": {"name": "p3", "units": 2, "slice_size": 500}},
    "a server of slices": {"faults": [SERVER], **ON, "strategy": {"name": "p3", "units": 2}},
    "chunks wait": {"faults": [SHORT], **WAIT, "strategy": {"name": "synchronous", "chunks": 3}},
    "clients of a server": {"faults": [SERVER | {"at": "500 ms"}], **WAIT, "strategy": "fedavg", **POOLED},
    "split": {"faults": [CRASH], "strategy": "pipedream-2bw", "parallelism": {"pipeline": 2}},
}  # fmt: skip


def others_go_on(case: str) -> bool:
    return CASES[case].get("recovery") == ON["recovery"]


@pytest.mark.real
@pytest.mark.parametrize("case", drawn(CASES, one_in=60, family=others_go_on))
def test_the_same_bits(case: str, tmp_path: Path) -> None:
    faults = CASES[case]["faults"]
    more = {"strategy": "asynchronous", **CASES[case]}
    del more["faults"]
    measured = lockstep.run(made(document(*faults, **more)), out=tmp_path)
    measured.save(tmp_path)
    replayed = lockstep.replay(tmp_path)  # which compares the updates, too
    assert replayed.metrics["parameters_sha256"] == measured.metrics["parameters_sha256"]
    assert not [*broken(replayed)]
    assert not [*broken(measured)]
    assert bool(measured.metrics["failures"]) is (faults not in ([], [JOIN]))


KINDS = {
    "crash": CRASH,
    "slow exit": SHORT | {"exits_after": "200 ms"},
    "hang": HANG | {"hang_for": "1 s"},
    "notice": {"worker": 1, "notice": "200 ms", "back_after": "500 ms"},
    "host": {"host": 1, "crash": True, "back_after": "500 ms"},
    "link": LINK,
    "partition": PARTITION,
    "server": SERVER,
}
STRUCK = [
    (strategy, kind)
    for strategy, known in STRATEGIES.items()
    for kind in KINDS
    if known.has_servers or kind != "server"
]


@pytest.mark.real
@pytest.mark.parametrize(("strategy", "kind"), drawn(STRUCK, one_in=48, family=lambda case: case[1]))
def test_each_strategy_with_each_kind_of_fault(strategy: str, kind: str, tmp_path: Path) -> None:
    """By day one strategy with each kind. It ends, all adds up, it can be repeated."""
    known, random = STRATEGIES[strategy], Random(f"{strategy} {kind}")
    on = random.choice(["restart", "spare", *(["continue", "wait"] if known.elastic else [])])
    recovery = {"on_failure": on} | ({} if strategy == "hogwild" else {"checkpoint": {"every": "2 updates"}})
    settings = {"name": strategy, **({"algorithm": "ring"} if strategy == "all-reduce" else {})}
    cluster = {"workers": 3 if known.sharded else 2}
    more = {"recovery": recovery, "cluster": cluster, "stop": {"steps": 40}}
    one = made(document(KINDS[kind] | {"at": "500 ms"}, strategy=settings, **more))
    measured = lockstep.run(one, out=tmp_path)
    assert measured.metrics["failures"] == 1
    assert not [*broken(measured)]
    measured.save(tmp_path)
    if strategy != "hogwild":
        lockstep.replay(tmp_path)


@pytest.mark.parametrize("saved", [10, 5])
def test_who_begins_anew_waits_for_the_checkpoint_that_it_has_read(saved: int) -> None:
    """Its own log has come to the end of its first life before that of worker 0 has come so far, if ever."""
    plan = Plan.of(made(document(SHORT, **{**ON, **SUMS, "cluster": {"workers": 2}})))
    again = Span(Incarnation(1, 2.0, 10, {1: 7}, rejoins=True))
    spans = {0: [Span(FIRST)], 1: [Span(FIRST, killed=True), again]}
    replay = Replay(plan, Life(FIRST, defaultdict(list, spans)), FIRST, None)
    checkpoint = Saved(saved, saved, ())
    Timeout(replay.environment, 1.0, lambda _: replay.nodes[0].keep(checkpoint)())
    if saved == 10:
        replay.run()
        assert replay.nodes[1].saved == checkpoint
    else:
        with pytest.raises(Divergence, match="worker 0 does not write the checkpoint of version 10"):
            replay.run()


def test_an_entry_of_who_may_be_killed_is_on_disk_at_once(tmp_path: Path) -> None:
    log = DurableInterleaving(tmp_path, 3)
    log.note("life", number=4, version=20, answer=1.5)
    log.note("message", "push", peer=1, number=1, version=7)
    found = streams.log(tmp_path, 3)
    assert found[["node", "word", "kind", "peer", "number", "version"]].to_numpy().tolist() == [
        [3, "life", "", -1, 4, 20],
        [3, "message", "push", 1, 1, 7],
    ]
    assert found["answer"].iloc[0] == 1.5
    assert not len(log.drain()[0])
    whole, _ = streams.packed_log(tmp_path, 3)
    whole.write_bytes(whole.read_bytes()[:-1])  # killed in the midst of an entry
    assert [*streams.log(tmp_path, 3)["word"]] == ["life"]
