"""One row per strategy, run in both engines: what a strategy promises, whatever it does.

Add a strategy, add a row.

deterministic  The run's numbers do not depend on who is first: both engines end with the same parameters.
is_sgd         And these are those of plain SGD on the mini-batches of all workers together.
is_sgd_alone   One worker by itself does plain SGD.
updates        How many updates each shard (or, without servers, each worker) makes here; None: it depends.
drops          Gradients may be given up or thrown away.
same_bytes     How many messages there are does not depend on who is first.
age            How stale its gradients are at most, if it is deterministic.
even           Every worker makes as many mini-batches; else they are a budget of all.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    strategy: dict[str, Any]
    deterministic: bool
    is_sgd: bool = True
    is_sgd_alone: bool = True
    servers: int = 2
    updates: int | None = 8  # of each shard, or rounds, with 2 workers and 8 mini-batches each
    drops: bool = False
    same_bytes: bool = True
    age: int = 0
    even: bool = True

    def __str__(self) -> str:
        return "-".join(str(value) for value in self.strategy.values())


ROWS = [
    Row({"name": "synchronous"}, deterministic=True),
    Row({"name": "synchronous", "momentum": 0.9}, deterministic=True),
    Row({"name": "synchronous", "chunks": 3}, deterministic=True),
    Row({"name": "synchronous", "codec": "top-k", "codec_ratio": 1.0}, deterministic=True),
    Row({"name": "synchronous", "codec": "1-bit", "chunks": 3}, True, is_sgd=False, is_sgd_alone=False),
    Row(
        {"name": "synchronous", "codec": "1-bit", "answer_codec": "int8", "chunks": 3},
        True,
        is_sgd=False,
        is_sgd_alone=False,
    ),
    Row({"name": "synchronous", "codec": "capped", "codec_bytes_per_s": 1e12}, deterministic=True),
    Row({"name": "p3"}, deterministic=True),
    Row({"name": "p3", "units": 2, "slice_size": 1000, "momentum": 0.9}, deterministic=True),
    Row({"name": "p3", "units": 2, "codec": "1-bit", "answer_codec": "int8"}, True, False, False),
    Row(
        {"name": "backup-workers", "backups": 1},
        False,
        servers=1,
        is_sgd_alone=False,
        updates=None,
        drops=True,
    ),
    Row({"name": "backup-workers", "backups": 0}, deterministic=True, servers=1),
    Row({"name": "k-sync", "k": 1}, deterministic=False, updates=None, drops=True),
    Row({"name": "k-sync", "k": 2}, deterministic=True, is_sgd_alone=False),
    Row({"name": "k-batch-sync", "k": 2}, deterministic=False, is_sgd_alone=False, updates=None, drops=True),
    Row({"name": "model-averaging", "averaging_period": 1}, deterministic=True),
    Row({"name": "model-averaging", "averaging_period": 3}, deterministic=True, is_sgd=False, updates=3),
    Row(
        {"name": "model-averaging", "averaging_period": 3, "momentum": 0.9, "optimizer_state": "average"},
        deterministic=True,
        is_sgd=False,
        updates=3,
    ),
    Row({"name": "easgd", "communication_window": 3}, True, is_sgd=False, is_sgd_alone=False, updates=3),
    Row({"name": "bmuf", "averaging_period": 3}, deterministic=True, is_sgd=False, updates=3),
    Row({"name": "bmuf", "averaging_period": 3, "block_nesterov": True}, True, is_sgd=False, updates=3),
    Row({"name": "fedavg", "local_epochs": 1}, True, is_sgd=False, servers=1, updates=1),
    Row({"name": "fedavg", "participation": 0.5}, True, is_sgd=False, servers=1, updates=1, even=False),
    Row({"name": "fedprox", "mu": 1.0}, True, is_sgd=False, is_sgd_alone=False, servers=1, updates=1),
    Row({"name": "asynchronous"}, deterministic=False, updates=16),
    Row({"name": "asynchronous", "warm_start": 3}, deterministic=False, updates=16),
    Row({"name": "staleness-aware"}, deterministic=False, updates=16),
    Row({"name": "dc-asgd"}, deterministic=False, updates=16),
    Row({"name": "dc-asgd", "adaptive_compensation": True}, deterministic=False, updates=16),
    Row({"name": "k-async", "k": 1}, deterministic=False, servers=1, updates=16),
    Row({"name": "k-async", "k": 2}, deterministic=True, is_sgd_alone=False, servers=1),
    Row({"name": "k-batch-async", "k": 2}, deterministic=False, is_sgd_alone=False),
    Row({"name": "soft-sync", "n": 1}, deterministic=False),
    Row({"name": "soft-sync", "n": 2}, deterministic=False, is_sgd_alone=False, updates=16),
    Row({"name": "compute-groups", "groups": 1}, deterministic=True),
    Row({"name": "compute-groups", "groups": 2}, deterministic=False, is_sgd_alone=False, updates=16),
    Row({"name": "synchronous", "codec": "2-bit", "codec_threshold": 0.01}, True, False, False),
    Row({"name": "ssp", "bound": 2}, deterministic=False, updates=16),
    Row({"name": "ssp", "bound": 2, "prefetch": False}, deterministic=False, updates=16, same_bytes=False),
    Row({"name": "ssp", "codec": "1-bit", "answer_codec": "1-bit"}, False, is_sgd_alone=False, updates=16),
    Row({"name": "ssp-blocking", "bound": 2}, deterministic=False, updates=16),
    Row(
        {"name": "ssp-blocking", "correction": "dc-asgd", "codec": "1-bit"},
        False,
        is_sgd_alone=False,
        updates=16,
    ),
    Row({"name": "bounded-delay", "bound": 0}, deterministic=False, updates=16),
    Row({"name": "bounded-delay", "bound": 2}, deterministic=False, is_sgd_alone=False, updates=16),
    Row({"name": "downpour"}, False, is_sgd_alone=False, updates=16, same_bytes=False),
    Row(
        {"name": "downpour", "communication_window": 3},
        False,
        is_sgd_alone=False,
        updates=6,
        same_bytes=False,
    ),
    Row({"name": "downpour-blocking", "communication_window": 3}, deterministic=False, updates=6),
    Row(
        {"name": "downpour-blocking", "push_period": 2, "fetch_period": 3},
        False,
        is_sgd_alone=False,
        updates=8,
    ),
    Row({"name": "agn", "communication_window": 1}, deterministic=False, updates=16),
    Row({"name": "agn", "communication_window": 3}, deterministic=False, is_sgd_alone=False, updates=6),
    Row({"name": "adag", "communication_window": 4}, False, is_sgd_alone=False, updates=4),
    Row({"name": "adag-distance", "communication_window": 3}, deterministic=False, updates=6),
    Row({"name": "dynsgd", "communication_window": 3}, deterministic=False, updates=6),
    Row({"name": "aeasgd", "communication_window": 3}, False, is_sgd_alone=False, updates=6),
    Row({"name": "eamsgd", "communication_window": 3}, False, is_sgd_alone=False, updates=6),
    Row({"name": "all-reduce", "algorithm": "ring"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "nccl-ring"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "gloo-ring"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "halving-doubling"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "recursive-doubling"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "binomial"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "two-level"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "hierarchical"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "parameter-server"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "auto"}, deterministic=True),
    Row({"name": "all-reduce", "algorithm": "native"}, deterministic=True),
    Row({"name": "all-reduce", "momentum": 0.9}, deterministic=True),
    Row({"name": "all-reduce", "codec": "top-k", "codec_ratio": 1.0}, deterministic=True),
    Row({"name": "all-reduce", "codec": "1-bit", "buckets": 3}, True, is_sgd=False, is_sgd_alone=False),
    Row({"name": "all-reduce", "codec": "fp16", "buckets": 3}, True, is_sgd=False, is_sgd_alone=False),
    Row({"name": "all-reduce", "codec": "bf16", "algorithm": "halving-doubling"}, True, False, False),
    Row({"name": "all-reduce", "codec": "fp16", "algorithm": "native"}, True, False, False),
    Row({"name": "all-reduce", "codec": "bf16", "algorithm": "native"}, True, False, False),
    Row({"name": "pipe-sgd"}, deterministic=True, is_sgd=False, is_sgd_alone=False, age=1),
    Row({"name": "pipe-sgd", "delay": 3, "algorithm": "two-level"}, True, False, False, age=3),
    Row({"name": "pipe-sgd", "delay": 0, "momentum": 0.9}, deterministic=True),
    Row({"name": "local-sgd", "averaging_period": 1}, deterministic=True),
    Row({"name": "local-sgd", "averaging_period": 3}, deterministic=True, is_sgd=False, updates=3),
    Row(
        {"name": "local-sgd", "averaging_period": 3, "momentum": 0.9, "optimizer_state": "average"},
        deterministic=True,
        is_sgd=False,
        updates=3,
    ),
    Row({"name": "post-local-sgd", "averaging_period": 3, "switch_step": 2}, True, is_sgd=False, updates=4),
    Row({"name": "adacomm", "averaging_period": 3}, deterministic=True, is_sgd=False, updates=3),
    Row({"name": "diloco", "averaging_period": 3}, True, is_sgd=False, is_sgd_alone=False, updates=3),
    Row({"name": "streaming-diloco", "averaging_period": 4}, True, False, False, updates=9, age=1),
    Row(
        {"name": "streaming-diloco", "averaging_period": 3, "fragments": 2, "overlap": 0, "codec": "e3m0"},
        True,
        False,
        False,
        updates=6,
    ),
    Row(
        {"name": "streaming-diloco", "averaging_period": 3, "fragments": 2, "units": 2},
        True,
        False,
        False,
        updates=6,
        age=1,
    ),
    Row({"name": "post-local-sgd", "switch_step": 9, "buckets": 3, "momentum": 0.9}, deterministic=True),
    Row({"name": "all-reduce", "buckets": 3}, deterministic=True),
    Row({"name": "hogwild"}, deterministic=False, updates=16),
    Row({"name": "hogwild", "momentum": 0.9}, deterministic=False, updates=16),
    Row({"name": "d-psgd", "graph": "ring"}, deterministic=True, is_sgd=False),
    Row({"name": "d-psgd", "graph": "complete", "momentum": 0.9}, deterministic=True, is_sgd=False),
    Row({"name": "d-psgd", "graph": [[0, 1]]}, deterministic=True, is_sgd=False, is_sgd_alone=False),
    Row({"name": "sgp", "graph": "torus"}, deterministic=True, is_sgd=False),
    Row({"name": "sgp"}, deterministic=True, is_sgd=False),
    Row({"name": "sgp", "momentum": 0.9}, deterministic=True, is_sgd=False),
    Row({"name": "osgp"}, deterministic=False),
    Row({"name": "osgp", "overlap": 3, "graph": "ring"}, deterministic=False),
    Row({"name": "osgp", "overlap": 0, "momentum": 0.9}, deterministic=True, is_sgd=False),
    Row({"name": "ad-psgd", "graph": "ring"}, deterministic=False),
    Row({"name": "gossip", "probability": 0.5}, deterministic=False),
    Row({"name": "ako", "partitions": 1}, deterministic=False),
    Row({"name": "ako", "partitions": 3}, deterministic=False),
    Row({"name": "all-reduce-jobs", "task_overhead_s": 0.001}, deterministic=True),
    Row({"name": "pipedream"}, deterministic=True),
    Row({"name": "fsdp"}, deterministic=True),
    Row({"name": "fsdp", "units": 2, "prefetch": 0}, deterministic=True),
    Row({"name": "fsdp", "units": 2, "reshard": False, "momentum": 0.9}, deterministic=True),
    Row({"name": "fsdp", "zero": 2, "buckets": 3}, deterministic=True),
    Row({"name": "fsdp", "zero": 1, "momentum": 0.9}, deterministic=True),
    Row({"name": "hsdp", "units": 2}, deterministic=True),
    Row({"name": "hsdp", "zero": 1, "group_size": 1}, deterministic=True),
    Row({"name": "pipedream-2bw"}, deterministic=True, is_sgd=False, is_sgd_alone=False, age=1),
]
