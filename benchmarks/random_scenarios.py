"""Scenarios drawn at random, the same ones for ever: `draw(number)` depends on its number alone.

Nothing of Lockstep is asked, so that an older checkout and a newer one get the same scenarios. What goes with
what is therefore said here once more; about one in ten is put together regardless, and is mostly refused.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

Document = dict[str, Any]

# Files that scenarios name, beside the scenario's own.
FILES = {
    "times.txt": "0.008\n0.011\n0.0095\n0.03\n0.0102\n",
    "slow.csv": "0, 1\n0.02, 2.5\n0.05, 1\n0.09, 4\n",
    "link.csv": "0, 1\n0.03, 0.25\n0.06, 1.5\n",
}

# Strategies by what their worker loop asks of the server.
_ANSWERED = (
    *("synchronous", "backup-workers", "model-averaging", "asynchronous", "agn", "adag", "k-async"),
    *("k-batch-async", "soft-sync", "staleness-aware", "dc-asgd", "ssp-blocking"),
)
_ONE_WAY = ("downpour-blocking", "adag-distance", "dynsgd", "aeasgd", "eamsgd", "bounded-delay")
_TIED = ("k-sync", "k-batch-sync", "easgd", "bmuf", "fedavg", "fedprox")
_WITHOUT_SERVER = (
    *("all-reduce", "local-sgd", "post-local-sgd", "adacomm", "diloco"),
    *("d-psgd", "sgp", "ad-psgd", "gossip", "hogwild"),
)
_SERVED = (*_ANSWERED, *_ONE_WAY, "downpour", "ssp", *_TIED)
STRATEGIES = (*_SERVED, *_WITHOUT_SERVER)

# Each synchronisation model once, by what a worker loop can bear.
_AT_ANY_TIME = ("asynchronous", "k-batch-async", "soft-sync", "ssp-blocking", "bounded-delay")
_BEARABLE: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(
        _ANSWERED, ("synchronous", "model-averaging", "backup-workers", "k-async", *_AT_ANY_TIME)
    ),
    **dict.fromkeys(_ONE_WAY, _AT_ANY_TIME),
    "downpour": ("asynchronous", "k-batch-async", "soft-sync"),
    "ssp": ("ssp", "ssp-blocking"),
}
_OWN_STEPS = {"model-averaging", "agn", "adag", "downpour", "ssp", *_ONE_WAY} - {"bounded-delay"}
_RULES = ("dc-asgd", "staleness-aware", "dynsgd", "adag-distance")
_ONE_SERVER = ("backup-workers", "k-async", "fedavg", "fedprox")
_RELAYED = ("synchronous", "model-averaging", "easgd", "bmuf", "asynchronous", "agn", "adag", "downpour")
_RELAYED += ("downpour-blocking", "aeasgd", "eamsgd")
_ALGORITHMS = ("ring", "halving-doubling", "recursive-doubling", "binomial", "two-level")
_ALGORITHMS += ("parameter-server", "auto", "native")
_CODECS = ("fp16", "bf16", "int8", "1-bit", "top-k", "random-k")


def draw(number: int) -> Document:
    """The scenario of that number, from 0: what its YAML file would say."""
    random = Random(f"lockstep {number}")
    strategy, careless = {"name": STRATEGIES[number % len(STRATEGIES)]}, random.random() < 0.1
    workers, per_host = random.choice((1, 2, 3, 4, 4, 5, 6, 7, 8, 9)), random.choice((1, 1, 1, 2, 3))
    if strategy["name"] == "hogwild":
        per_host = workers
    if strategy["name"] in _SERVED and random.random() < 0.6:
        strategy |= _careless_factors(random) if careless else _factors(random, strategy["name"])
    strategy |= _parameters(random, strategy, workers)
    if strategy["name"] in ("fedavg", "fedprox"):
        strategy.setdefault("local_epochs", 1)  # five take long
    workload, nbytes = _workload(random, strategy["name"])
    hosts = -(-workers // per_host)
    servers = _servers(random, strategy, workers, hosts, careless)
    cluster = {
        "workers": workers,
        "workers_per_host": per_host,
        "servers": servers,
        "network": _network(random, hosts, nbytes),
        "compute": _compute(random, workload),
        "stragglers": _stragglers(random, workers),
        **_some(
            random,
            0.3,
            cores_per_host=(1, 2),
            memory_bandwidth=(f"{20 * nbytes} B/s", f"{500 * nbytes} B/s"),
            apply_overhead=("1 ms", "200 us"),
            codecs=({codec: {"encode": f"{99 * nbytes} B/s", "decode": "1 GB/s"} for codec in _CODECS},),
        ),
    }
    return {
        "name": f"random-{number:03}",
        "cluster": cluster,
        "workload": workload,
        "strategy": strategy,
        "stop": _stop(random, workload),
        "seed": random.randrange(100),
    }


def _some(random: Random, probability: float, /, **choices: Sequence[Any]) -> Document:
    """Each key with that probability, with one of its values."""
    return {key: random.choice(values) for key, values in choices.items() if random.random() < probability}


def _factors(random: Random, name: str) -> Document:
    """Factors that go with each other; `name` has those that are not here."""
    found: Document = {}
    loop = name
    if name not in _TIED:
        if random.random() < 0.6:
            found["schedule"] = loop = random.choice([*_BEARABLE])
        found["consistency"] = random.choice(_BEARABLE[loop])
    pushes_deltas = loop in _OWN_STEPS or loop in ("easgd", "bmuf", "fedavg", "fedprox")
    if random.random() < 0.6 or (name == "dc-asgd" and pushes_deltas):
        found["rule"] = random.choice(
            [rule for rule in (*_RULES, "synchronous") if rule != "dc-asgd" or not pushes_deltas]
        )
    return found


def _careless_factors(random: Random) -> Document:
    return _some(random, 0.6, schedule=STRATEGIES, consistency=STRATEGIES, rule=STRATEGIES)


def _parameters(random: Random, strategy: Document, workers: int) -> Document:
    """Parameters of the strategy, of those it takes factors from and of all strategies."""
    upto = range(1, workers + 1)
    how_many, bounded = {"k": upto}, {"bound": (0, 1, 3)}
    window = {"communication_window": (1, 2, 3, 5)}
    periods = {**window, "push_period": (1, 2), "fetch_period": (2, 3)}
    elastic = {**window, "rho": (0.3, 1.0)}
    averaging = {"averaging_period": (1, 2, 3), "optimizer_state": ("keep", "reset", "average")}
    ring = {"algorithm": _ALGORITHMS}
    clients = {"local_epochs": (1, 2), "participation": (0.5, 1.0)}
    compensation = {"compensation": (0.04, 0.5), "adaptive_compensation": (True, False)}
    graph = {"graph": ("ring", "torus", "exponential", "complete", [[i, i + 1] for i in range(workers - 1)])}
    own: Mapping[str, Mapping[str, Sequence[Any]]] = {
        "synchronous": {"chunks": (1, 2, 3)},
        "backup-workers": {"backups": range(workers)},
        **dict.fromkeys(("k-sync", "k-batch-sync", "k-async", "k-batch-async"), how_many),
        "model-averaging": averaging,
        "bmuf": {
            **averaging,
            "block_momentum": (0.5,),
            "block_nesterov": (True,),
            "block_learning_rate": (0.7,),
        },
        "fedavg": clients,
        "fedprox": {**clients, "mu": (1.0,), "sampling": ("uniform", "share"), "partial_work": (0.5,)},
        **dict.fromkeys(("downpour", "downpour-blocking", "adag-distance", "dynsgd"), periods),
        **dict.fromkeys(("agn", "adag"), window),
        **dict.fromkeys(("easgd", "aeasgd", "eamsgd"), elastic),
        "soft-sync": {"n": upto},
        "dc-asgd": compensation,
        "ssp": {**bounded, "prefetch": (True, False)},
        **dict.fromkeys(("ssp-blocking", "bounded-delay"), bounded),
        "all-reduce": {**ring, "buckets": (1, 2, 4)},
        "local-sgd": {**averaging, **ring},
        "post-local-sgd": {**averaging, **ring, "buckets": (1, 3), "switch_step": (2, 4)},
        "adacomm": {"averaging_period": (2, 4), "interval_s": (0.03, 0.1), **ring},
        "diloco": {
            "averaging_period": (2, 3),
            "outer_learning_rate": (0.5,),
            "outer_momentum": (0.5,),
            **ring,
        },
        **dict.fromkeys(("d-psgd", "sgp", "ad-psgd"), graph),
        "gossip": {"probability": (0.5, 1.0), **({"peers": upto[:-1]} if workers > 1 else {})},
    }
    found: Document = {}
    for source in dict.fromkeys(strategy.values()):
        found |= _some(random, 0.7, **own.get(source, {}))
    if random.random() < 0.5:
        optimizers = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw")
        found["optimizer"] = random.choice(optimizers)
    found |= _some(
        random,
        0.2,
        learning_rate=(0.02, 0.1),
        momentum=(0.5, 0.9),
        weight_decay=(0.001,),
        warm_start=(2, 5),
        codec=_CODECS,
        answer_codec=_CODECS,
        server_optimizer=("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"),
    )
    if {"codec", "answer_codec"} & {*found}:
        found |= _some(random, 0.4, codec_ratio=(0.1, 1.0), error_feedback=(True, False))
    if "server_optimizer" in found:
        found |= _some(random, 0.4, server_learning_rate=(0.05,), server_momentum=(0.5,))
    if random.random() < 0.25:
        found |= {"decay": random.choice(("linear", "cosine", "step", "inverse-sqrt")), "decay_steps": 7}
        found |= _some(random, 0.5, warmup_steps=(3,))
    return found


def _workload(random: Random, name: str) -> tuple[Document, int]:
    """A workload, and the bytes of its parameters."""
    batch = {"batch_size": random.choice((4, 16, 32))}
    kind = random.choice(("sizes", "sizes", "quadratic", "digits", "digits", "logistic"))
    if name in ("fedavg", "fedprox", "adacomm") and random.random() < 0.6:
        kind = "digits"
    if kind == "sizes":
        parameters = random.choice((1, 7, 1000, 250_000))
        dtype, width = random.choice((("float32", 4), ("float32", 4), ("float16", 2), ("float64", 8)))
        sizes = {"parameters": parameters, "dtype": dtype, "flops": 1_000_000, **batch}
        return sizes, parameters * width
    if kind == "quadratic":
        return {"problem": kind, "dimension": 20, "noise": random.choice((0.1, 1.0)), **batch}, 80
    partition = _some(random, 0.5, partition=("iid", {"dirichlet": 0.5}, {"labels": 2}))
    if kind == "logistic":
        return {
            "problem": kind,
            "dimension": 50,
            **batch,
            **_some(random, 0.5, density=(0.1,)),
            **partition,
        }, 200
    batch = {"batch_size": random.choice((16, 32))}
    unlearned = _some(random, 0.15, learning=(False,))
    return {"dataset": "digits", "model": "mlp", **batch, **partition, **unlearned}, 4810 * 4


def _servers(random: Random, strategy: Document, workers: int, hosts: int, careless: bool) -> Document:
    """Shards, where they stand, and relays."""
    consistency = strategy.get("consistency", strategy["name"])
    one = consistency in _ONE_SERVER and not careless
    counts = (1,) if one or strategy["name"] in _WITHOUT_SERVER else (1, 1, 2, 3, "hosts", "workers")
    count = random.choice(counts)
    found: Document = {"count": count, "colocated": random.random() < 0.35}
    if isinstance(count, int) and random.random() < 0.3:
        found["shares"] = [random.choice((1, 2, 50)) for _ in range(count)]
    found |= _some(random, 0.15, speed=(0.5, 4.0))
    named = (strategy["name"], strategy.get("rule", ""))
    corrected = strategy.get("rule", strategy["name"]) in _RULES
    encoded = {"codec", "answer_codec"} & {*strategy}
    fits = consistency in _RELAYED and not corrected and not encoded
    if (fits and random.random() < 0.5) or (careless and "fedavg" not in named and random.random() < 0.3):
        fan_out = _some(random, 0.5, fan_out=(1, 2))
        found["hierarchy"] = {"groups": random.randint(1, workers), **fan_out}
    elif isinstance(count, int) and not found["colocated"] and random.random() < 0.2:
        found["places"] = [0] * count
    return found


def _network(random: Random, hosts: int, nbytes: int) -> Document:
    """A network on which the parameters take from half a millisecond to 30 ms."""

    def rate(seconds: float) -> str:
        return f"{max(1, round(nbytes / seconds))} B/s"

    bandwidth = rate(random.choice((0.0005, 0.005, 0.03)))
    sites = [hosts // 2, hosts - hosts // 2] if hosts > 1 else [hosts]
    pairs = [{"between": [0, 1], "latency": "7 ms"}] if hosts > 1 else []
    topologies: list[Document] = [
        {"kind": "racks", "hosts_per_rack": 2, "oversubscription": 4, "latency": "5 ms"},
        {"kind": "racks", "hosts_per_rack": 3, "uplink": rate(0.02)},
        {"kind": "fat-tree", "hosts_per_leaf": 2, "spines": 2, "link": rate(0.01), "latency": "1 ms"},
        {"kind": "sites", "hosts": sites, "latency": "30 ms", "bandwidth": rate(0.02)},
        {"kind": "sites", "hosts": sites, "bandwidth": rate(0.01), "pairs": pairs},
    ]
    schedule = [{"at": "13 ms", "factor": 0.3}, {"at": "50 ms", "factor": 2.0}]
    varying = [
        [{"links": "*", "schedule": schedule, "repeat": "70 ms"}],
        [{"links": "*0's *", "file": "link.csv"}],
    ]
    other = {"from": 0, "to": hosts - 1}
    background = [
        [{**other, "bandwidth": rate(0.05), "on": "20 ms", "off": "30 ms"}],
        [{**other, "flows": 2}],
        [{**other, "bandwidth": rate(0.04)}],
    ]
    if random.random() < 0.08:
        return {}
    return {"bandwidth": bandwidth} | _some(
        random,
        0.25,
        latency=("1 ms", "200 us"),
        message_overhead=("1 ms", "100 us"),
        receive_overhead=("1 ms", "100 us"),
        goodput=(0.9,),
        duplex=("half",),
        burst=({"size": f"{nbytes} B", "line_rate": rate(0.00005)},),
        queue=(f"{-(-nbytes // 3)} B", f"{2 * nbytes} B"),
        server_bandwidth=(rate(0.001),),
        cards=([{"hosts": [0], "bandwidth": rate(0.05)}],),
        intra_host=({"bandwidth": rate(0.0003), "latency": "10 us"}, {"latency": "1 ms"}),
        topology=("star", *topologies),
        varying=varying,
        background=background if hosts > 1 else [[]],
    )


def _compute(random: Random, workload: Document) -> Document:
    times: list[Document] = [
        {"distribution": "constant", "value": "10 ms"},
        {"distribution": "uniform", "low": "5 ms", "high": "15 ms"},
        {"distribution": "exponential", "mean": "10 ms"},
        {"distribution": "shifted-exponential", "shift": "5 ms", "mean": "5 ms"},
        {"distribution": "lognormal", "mean": "10 ms", "cv": 0.3},
        {"distribution": "gamma", "mean": "10 ms", "cv": 0.5},
        {"distribution": "pareto", "mean": "10 ms", "shape": 1.5},
        {"distribution": "empirical", "file": "times.txt"},
    ]
    backward = _some(random, 0.4, backward=(0.67, 0.4))
    if "flops" in workload and random.random() < 0.3:
        return {"peak": "1 GFLOP/s", "efficiency": 0.5, **backward}
    return {"time": random.choice(times), **backward}


def _stragglers(random: Random, workers: int) -> list[Document]:
    when: list[Document] = [
        {"worker": workers - 1},
        {"probability": 0.3},
        {"host": 0, "probability": 0.5},
        {"host": 0, "spells": {"every": "30 ms", "last": "20 ms"}},
        {"spells": {"every": "60 ms", "last": "20 ms"}},
        {"rack": 0, "period": "50 ms", "busy": "10 ms", "offset": "5 ms"},
        {"worker": 0, "trace": "slow.csv", "repeat": "120 ms"},
        {"trace": "slow.csv"},
    ]
    count = random.choice((0, 0, 1, 1, 2))
    slow = [{**item, "slowdown": random.choice((1.5, 3))} for item in random.sample(when, count)]
    return [
        {key: value for key, value in item.items() if "trace" not in item or key != "slowdown"}
        for item in slow
    ]


def _stop(random: Random, workload: Document) -> Document:
    kinds: list[Document] = [
        {"steps": random.randint(2, 12)},
        {"steps": random.randint(2, 12)},
        {"updates": random.randint(1, 30)},
        {"time": f"{random.randint(20, 300)} ms"},
        {"steps": random.randint(4, 12), "time": f"{random.randint(50, 150)} ms"},
        {"steps": random.randint(4, 12), "updates": random.randint(4, 30)},
    ]
    if "dataset" in workload:
        kinds += [{"epochs": 1}] * 2
        if workload.get("learning") is None:
            kinds += [{"target_accuracy": random.choice((0.15, 0.4)), "steps": 20}] * 2
            kinds += [{"target_accuracy": 0.3, "epochs": 1}]
    return random.choice(kinds)
