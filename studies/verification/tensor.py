"""Layers cut between devices: what each sends, how long a step takes and what it keeps, by closed forms.

T devices share each of L layers; each part is on r of them (`redundancy`), so T/r of them meet. P stages, M
micro-batches, A bytes of a mini-batch's activations at a boundary, B bytes/s, α s. Two all-reduces a layer
forward and two backward: Shoeybi et al. 2019, §3; as much with sequence parallelism: Korthikanti et al.
2022, §4.2.2; halos of rows: Dryden et al. 2019, §3.1.
"""

from typing import Any

import lockstep
from lockstep import Result, Scenario
from lockstep.strategies.orders import ORDERS
from lockstep.studies.verification.case import Case, Outcome, constant, exact, grid
from lockstep.studies.verification.event_list import makespan

_MEGABYTE, _WORK = 1e6, 12.0  # bytes of activations of a mini-batch a micro-batch; s of a whole gradient


def _run(workload: dict[str, Any], split: dict[str, Any], strategy: Any, **cluster: Any) -> Result:
    """One mini-batch of one replica."""
    document = {
        "name": "verify",
        "cluster": {
            "workers": split.get("tensor", 1) * split.get("pipeline", 1),
            "compute": {"time": constant(_WORK), "backward": 2 / 3},
            **cluster,
        },
        "workload": {"learning": False} | workload,
        "parallelism": split,
        "strategy": strategy,
        "stop": {"steps": 1},
    }
    return lockstep.simulate(Scenario.model_validate(document))


def _sized(T: int, L: int, *, P: int = 1, M: int = 1, strategy: Any = "all-reduce", **more: Any) -> Result:
    """Sizes only: 960,000 parameters in L layers, 1 MB a micro-batch at each boundary."""
    split = {"tensor": T, "pipeline": P, "micro_batches": M}
    split |= {key: more.pop(key) for key in ("sequence", "redundancy", "recompute", "order") if key in more}
    workload = {"parameters": 960_000, "layers": L, "batch_size": M, "activation": f"{M} MB"}
    workload |= {key: more.pop(key) for key in ("mixed",) if key in more}
    return _run(workload, split, strategy, **more)


def _sent(result: Result) -> float:
    """Bytes of all devices."""
    return float(result.metrics["bytes_sent"])


def _seconds(result: Result) -> float:
    """Of the step. The last thing before the update is the sum of errors in front of the first layer."""
    return float(result.metrics["duration_s"])


# What is sent, sizes only


def _bytes(T: int, r: int, P: int, M: int, sequence: bool) -> Outcome:
    """Of a device, on average over the stages: those at the ends send to one neighbour only."""
    parts, layers, devices = T // r, 8, T * P
    inside = 4 * layers / P * 2 * (parts - 1) / parts * M * _MEGABYTE
    boundaries = 2 * (P - 1) / P * M * _MEGABYTE / (parts if sequence else 1)
    result = _sized(T, layers, P=P, M=M, redundancy=r, sequence=sequence)
    return exact(inside + boundaries, _sent(result) / devices)


# What is sent, of the layers of real models, float32; totals of all devices


def _ring(parts: int, nbytes: float) -> float:
    """An all-reduce; an all-gather and a reduce-scatter are half of it each."""
    return 2 * (parts - 1) * nbytes


def _transformer(T: int, blocks: int, sequence: bool) -> Outcome:
    """Per block 2 all-reduces each way; the embedding's, the head's and two values a token for the loss.

    With `sequence` nobody has seen all positions with the weights that each has whole: a sum of 6·hidden of
    each block (two norms, two biases) and 2·hidden of the last norm, once a mini-batch.
    """
    batch, length, hidden, M = 4, 16, 32, 2
    activation = 4 * batch * length * hidden
    loss = (T - 1) * T * 2 * 4 * batch * length
    theory = _ring(T, activation) * (4 * blocks + 2) + loss
    if sequence:
        theory += _ring(T, 4 * (6 * blocks + 2) * hidden)
    workload = {"model": "transformer", "dataset": "sentences", "layers": blocks, "hidden": hidden}
    workload |= {"heads": 8, "sequence": length, "batch_size": batch}
    split = {"tensor": T, "sequence": sequence, "micro_batches": M}
    return exact(theory, _sent(_run(workload, split, "all-reduce")))


def _mlp(T: int, r: int) -> Outcome:
    """64 → 64 → 10, the first layer by column, the second by row: one all-reduce of the outputs forward.

    Backward nothing: samples need no gradient. Each of the r groups does so.
    """
    split = {"tensor": T, "redundancy": r}
    result = _run({"dataset": "digits", "model": "mlp", "batch_size": 8}, split, "all-reduce")
    return exact(r * _ring(T // r, 4 * 8 * 10), _sent(result))


def _convolutions(T: int, way: str) -> Outcome:
    """MNIST: 32 channels of 26 × 26, 64 of 24 × 24 (pooled 12 × 12) by 3 × 3; then 9216 → 128 → 20 → 10."""
    batch, item = 4, 4
    first, second, pooled = (batch * item * n for n in (32 * 26**2, 64 * 24**2, 64 * 12**2))
    behind = _ring(T, batch * item * 9216), _ring(T, batch * item * 20)  # the error of the first, a sum
    last = _ring(T, batch * item * 20) + _ring(T, batch * item * 10) / 2  # its error, its outputs
    gathered = _ring(T, pooled) / 2
    match way:
        case "all-reduce":  # one pair of convolutions: a sum of channels
            theory = _ring(T, second) + sum(behind) + last
        case "all-gather":  # each convolution's channels; backward each sums those of the second's inputs
            theory = _ring(T, first) + gathered + sum(behind) + last
        case _:  # a row of the first's output to each neighbour, and its error back; weights are on all
            rows = 2 * (T - 1) * (3 - 1) / 2 * 26 * 32 * batch * item
            weights = _ring(T, item * (9 * 32 + 32 + 9 * 32 * 64 + 64))
            # the rows are put together; backward, each sums its own only: half of an all-reduce
            theory = 2 * rows + weights + gathered + _ring(T, pooled) / 2 + behind[1] + last
    split = {"tensor": T, "convolutions": way}
    result = _run({"dataset": "mnist", "model": "cnn", "batch_size": batch}, split, "all-reduce")
    return exact(theory, _sent(result))


# How long it takes


def _one_host(T: int, r: int, sequence: bool) -> Outcome:
    """All T send at once over the one link of their host: a ring's step of the parts' r·A/T takes r·A/B."""
    layers, bandwidth, latency = 4, 1e8, 1e-3
    step = latency + r * _MEGABYTE / bandwidth
    theory = _WORK * r / T + 4 * layers * 2 * (T // r - 1) * step
    intra = {"bandwidth": f"{bandwidth} B/s", "latency": f"{latency} s"}
    network = {"bandwidth": "1 GB/s", "latency": "0 s", "intra_host": intra}
    result = _sized(T, layers, redundancy=r, sequence=sequence, workers_per_host=T, network=network)
    return exact(theory, _seconds(result))


def _hosts(T: int, r: int, M: int, sequence: bool) -> Outcome:
    """A card each: a step of the ring takes α + r·A/(T·B)."""
    layers, bandwidth, latency = 4, 1e8, 1e-3
    step = latency + r / T * _MEGABYTE / bandwidth
    theory = _WORK * r / T + M * 4 * layers * 2 * (T // r - 1) * step
    network = {"bandwidth": f"{bandwidth} B/s", "latency": f"{latency} s"}
    result = _sized(T, layers, M=M, redundancy=r, sequence=sequence, network=network)
    return exact(theory, _seconds(result))


def _stages(T: int, P: int, M: int, sequence: bool, recompute: bool) -> Outcome:
    """A stage a host: T messages at once over its card, rings inside during the passes; against events."""
    layers, bandwidth, latency = 2, 2e6, 0.05  # of a stage
    inside, near = 1e8, 1e-3
    rings = layers * 2 * 2 * (T - 1) * (near + _MEGABYTE / inside)  # of a pass, either way
    share = _WORK / (3 * T * P * M)
    takes = {"forward": share + rings, "backward": 2 * share + rings}
    if recompute:  # the last sum of the forward pass is not needed again
        takes["backward"] += share + rings * (1 - 1 / (4 * layers if sequence else 2 * layers))
    theory = makespan(
        [[*ORDERS["1f1b"](stage, P, M, 1)] for stage in range(P)],
        1,
        lambda _, kind: takes[kind],
        nbytes=_MEGABYTE * (1 if sequence else T),
        bandwidth=bandwidth,
        latency=latency,
    )
    intra = {"bandwidth": f"{inside} B/s", "latency": f"{near} s"}
    network = {"bandwidth": f"{bandwidth} B/s", "latency": f"{latency} s", "intra_host": intra}
    result = _sized(
        T, layers * P, P=P, M=M, sequence=sequence, recompute=recompute, workers_per_host=T, network=network
    )
    return exact(theory, _seconds(result))


def _halo(latency: float) -> Outcome:
    """The cnn as above on two hosts without a bandwidth: a halo takes a latency, less what hides it.

    Of the second convolution's 24 rows a device makes 12, 11 without its neighbour; backward is twice the
    work. 9 other steps wait: the rows' gather and scatter, their weights' ring (2), the pair's sum (2) and
    the last layer's gather and sum of errors (1 + 2).
    """
    first, second = 2 * 9 * 32 * 26**2, 2 * 9 * 32 * 64 * 24**2
    flops = 2 * first + 3 * second + 3 * 2 * (9216 * 128 + 128 * 20 + 20 * 10)
    inner = 11 / 24 * second / flops * _WORK
    theory = _WORK / 2 + 9 * latency + max(0.0, latency - inner) + max(0.0, latency - 2 * inner)
    workload = {"dataset": "mnist", "model": "cnn", "batch_size": 4}
    split = {"tensor": 2, "convolutions": "halo"}
    cluster = {"network": {"latency": f"{latency} s"}, "compute": {"time": constant(_WORK)}}
    return exact(theory, _seconds(_run(workload, split, "all-reduce", **cluster)))


# What a device keeps


def _memory(T: int, P: int, sequence: bool, moments: int) -> Outcome:
    """The plan's, of the first stage: parameters, gradient and moments ÷ TP; mixed, 16 bytes with Adam's two.

    1F1B keeps min(M, P) micro-batches of its L/P layers; with `sequence` a T-th of each. A micro-batch is on
    its way besides, in and out: the first stage sends only.
    """
    layers, M = 8, 4
    strategy = {"name": "all-reduce", "optimizer": "adam"} if moments else "all-reduce"
    result = _sized(T, layers, P=P, M=M, sequence=sequence, strategy=strategy, mixed=bool(moments))
    a_parameter = 2 + 2 + 4 * (1 + moments) if moments else 4 + 4
    each = _MEGABYTE / (T if sequence else 1)
    sent = each if P > 1 else 0
    # layers keep what comes in; the first one's too
    theory = a_parameter * 960_000 / (T * P) + min(M, P) * layers / P * each + sent
    return exact(theory, float(result.plan.memory[0].total))


_HOW: dict[str, dict[str, Any]] = {
    "plain": {},
    "halo": {"convolutions": "halo"},
    "sequence": {"sequence": True},
    "recompute": {"recompute": True},
}


def _kept(model: str, T: int, r: int, how: str) -> Outcome:
    """What the passes of a run that learns really kept, against what the plan says of the layers."""
    workload: dict[str, Any] = {"dataset": "digits", "model": model, "batch_size": 8, "learning": True}
    if model == "transformer":
        workload |= {"dataset": "sentences", "layers": 2, "hidden": 32, "heads": 4, "sequence": 16}
    split = {"tensor": T, "redundancy": r, "micro_batches": 2, "order": "gpipe"} | _HOW[how]
    result = _run(workload, split, "all-reduce")
    passes = result.records[result.records["event"] == "pass"]
    most = passes.groupby("node")["nbytes"].max()
    return exact(float(sum(its.activations for its in result.plan.memory)), float(most.sum()))


_BOTH = [False, True]
CASES: list[Case] = [
    *grid("tensor T={T}, r={r}, P={P}, M={M}, sequence {sequence}: bytes a device",
          _bytes, T=[2, 8], r=[1], P=[1, 4], M=[1, 4], sequence=_BOTH),
    *grid("tensor T={T}, r={r}, P={P}, M={M}, sequence {sequence}: bytes a device",
          _bytes, T=[8], r=[2, 4, 8], P=[1, 2], M=[2], sequence=[False]),
    *grid("tensor transformer, T={T}, {blocks} blocks, sequence {sequence}: bytes",
          _transformer, T=[2, 4, 8], blocks=[1, 3], sequence=_BOTH),
    *grid("tensor mlp, T={T}, r={r}: bytes", _mlp, T=[4], r=[1, 2, 4]),
    *grid("tensor convolutions by {way}, T={T}: bytes",
          _convolutions, T=[2, 4], way=["all-reduce", "all-gather", "halo"]),
    *grid("tensor T={T}, r={r}, sequence {sequence}: step in one host",
          _one_host, T=[2, 4, 8], r=[1, 2], sequence=[False]),
    *grid("tensor T={T}, r={r}, sequence {sequence}: step in one host",
          _one_host, T=[4], r=[1], sequence=[True]),
    *grid("tensor T={T}, r={r}, M={M}, sequence {sequence}: step over hosts",
          _hosts, T=[2, 4, 8], r=[1, 2], M=[1, 3], sequence=[False]),
    *grid("tensor T={T}, r={r}, M={M}, sequence {sequence}: step over hosts",
          _hosts, T=[4], r=[1, 2], M=[2], sequence=[True]),
    *grid("tensor T={T}, P={P}, M={M}, sequence {sequence}, recompute {recompute}: step of stages",
          _stages, T=[2, 4], P=[2, 4], M=[1, 8], sequence=_BOTH, recompute=_BOTH),
    *grid("tensor halo, {latency} s of latency: step", _halo, latency=[1e-3, 1.0, 3.0, 10.0]),
    *grid("tensor T={T}, P={P}, sequence {sequence}, {moments} moments: memory",
          _memory, T=[2, 8], P=[1, 4], sequence=_BOTH, moments=[0, 2]),
    *grid("tensor {model}, T={T}, r={r}, {how}: kept",
          _kept, model=["mlp", "cnn"], T=[4], r=[1, 2], how=["plain"]),
    *grid("tensor {model}, T={T}, r={r}, {how}: kept", _kept, model=["cnn"], T=[2], r=[1], how=["halo"]),
    *grid("tensor {model}, T={T}, r={r}, {how}: kept",
          _kept, model=["transformer"], T=[2, 4], r=[1], how=["plain", "sequence", "recompute"]),
]  # fmt: skip
