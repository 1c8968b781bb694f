"""Codecs: what is sent, how large it is, and what is left of it; the same in both engines."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario
from lockstep.job.events import Event
from lockstep.job.node import Node as RunningNode
from lockstep.job.plan import Plan
from lockstep.job.sized import Sized
from lockstep.simulator.engine import Simulation
from lockstep.strategies import Message
from lockstep.strategies.codecs import NAMES, Codec, Encoder, decode
from lockstep.workloads import codecs, layouts
from tests.support.nightly import drawn, examples
from tests.support.nodes import at_once, real_nodes
from tests.support.scenarios import scenario

DTYPES = {dtype: getattr(torch, dtype) for dtype in ("float32", "float64", "float16", "bfloat16")}
LENGTHS = [0, 1, 2, 7, 8, 9, 255, 256, 257, 600]
SEED = 2**64 - 2

seeds = st.integers(0, 2**64 - 1)
ratios = st.sampled_from([1e-9, 0.01, 0.1, 0.37, 1.0])
names = st.sampled_from(NAMES)


def normal(length: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(seed))


@st.composite
def vectors(draw: st.DrawFn) -> torch.Tensor:
    """Any finite float32 numbers, or many, with ties."""
    if draw(st.booleans()):
        return torch.tensor(draw(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False))))
    scale = 10.0 ** draw(st.integers(-30, 30))
    vector = normal(draw(st.sampled_from(LENGTHS)), draw(st.integers(0, 99)))
    return (vector * draw(st.sampled_from([1, 1000]))).round() * scale


def left_of(vector: torch.Tensor, codec: Codec, seed: int = SEED) -> torch.Tensor:
    return codecs.decode(codecs.encode(vector, codec, seed), codec, len(vector), vector.dtype)


# ------------------------------------------------------------------ bytes


@given(vectors(), names, ratios, seeds, st.sampled_from(list(DTYPES.values())))
def test_a_body_has_the_bytes_that_were_announced(vector, name, ratio, seed, dtype) -> None:
    vector, codec = vector.to(dtype), Codec(name, ratio)
    body = codecs.encode(vector, codec, seed)
    assert body.nbytes == codecs.nbytes(codec, len(vector), dtype.itemsize)
    if codec.sums:  # such a body is cut and added like a vector
        assert body.shape == vector.shape
    else:
        assert body.dtype == torch.uint8
    back = codecs.decode(body, codec, len(vector), dtype)
    assert (back.shape, back.dtype) == (vector.shape, dtype)
    shifted = torch.empty(len(vector) + 1, dtype=dtype)[1:].copy_(vector)  # off any alignment
    assert torch.equal(codecs.encode(shifted, codec, seed), body)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("none", 4000), ("fp16", 2000), ("bf16", 2000), ("int8", 1000 + 4 * 4), ("e3m0", 500 + 4 * 4),
     ("2-bit", 4 * 63), ("1-bit", 125 + 4 * 8), ("top-k", 10 * 8), ("random-k", 8 + 10 * 4)],
)  # fmt: skip
def test_bytes_of_a_thousand_floats(name: str, expected: int) -> None:
    assert layouts.nbytes(Codec(name), 1000, itemsize=4) == expected


def test_k_is_at_least_one_and_at_most_all() -> None:
    assert [layouts.kept(0.01, length) for length in (0, 1, 49, 150, 250, 350)] == [0, 1, 1, 2, 2, 4]
    assert layouts.kept(1.0, 7) == 7


def test_every_codec_has_its_arithmetic() -> None:
    for name in NAMES:
        assert left_of(normal(300), Codec(name)).isfinite().all()
    with pytest.raises(ValueError, match="unknown codec '3-bit'"):
        codecs.encode(normal(3), Codec("3-bit"))


@pytest.mark.parametrize("name", NAMES)
def test_a_body_of_another_length_is_an_error(name: str) -> None:
    with pytest.raises(RuntimeError, match="split_with_sizes"):
        codecs.decode(codecs.encode(normal(700), Codec(name, 0.1)), Codec(name, 0.1), 300)


# ------------------------------------------------------------------ what is left


@given(vectors(), names, ratios, seeds)
def test_what_has_been_sent_once_is_sent_as_it_is(vector, name, ratio, seed) -> None:
    once = left_of(vector, Codec(name, ratio), seed)
    twice = left_of(once, Codec(name, ratio), seed)
    if name == "int8":  # 127 × scale is rounded
        assert twice.tolist() == pytest.approx(once.tolist(), rel=1e-6, abs=1e-40)
    else:
        assert torch.equal(twice, once)


@given(vectors())
def test_none_loses_nothing_and_so_do_all_elements(vector) -> None:
    assert torch.equal(left_of(vector, Codec("none")), vector)
    assert torch.equal(left_of(vector, Codec("top-k", 1.0)), vector)
    assert torch.equal(left_of(vector, Codec("random-k", 1.0)), vector)


def test_narrow_floats_round_to_nearest_and_stay_finite() -> None:
    vector = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 1e-30, 7e4, -1e30, torch.inf, torch.nan])
    half = left_of(vector, Codec("fp16"))
    assert half[:6].tolist() == [1, 1 + 2**-9, 0, 65504, -65504, 65504]
    brain = left_of(vector, Codec("bf16"))
    largest = torch.finfo(torch.bfloat16).max
    assert brain[[0, 5]].tolist() == [1, largest]
    assert brain[[2, 3, 4]].tolist() == pytest.approx(vector[[2, 3, 4]].tolist(), rel=2**-8)
    assert left_of(torch.tensor([-3.4e38]), Codec("bf16")).tolist() == [-largest]
    assert half[6].isnan()
    assert brain[6].isnan()


@given(vectors())
@example(torch.tensor([torch.finfo(torch.float32).max]))
@example(torch.tensor([6.5358e-40]))
def test_int8_is_off_by_half_a_step_at_most(vector) -> None:
    back = left_of(vector, Codec("int8")).double()
    for begin in range(0, len(vector), 256):
        block = vector[begin : begin + 256].double()
        step = block.abs().max() / 127
        # The scale is a float32, as is a multiple of it: off by half the least one, 7e-46, 127 times.
        assert (back[begin : begin + 256] - block).abs().max() <= 0.5001 * step + 1e-43
        assert back[begin : begin + 256].abs().max() <= block.abs().max() * 1.00001 + 1e-43


@given(vectors())
def test_one_bit_by_the_paper(vector) -> None:
    body, back = codecs.encode(vector, Codec("1-bit")), left_of(vector, Codec("1-bit"))
    values = vector.double().numpy()
    bits = np.packbits(values >= 0, bitorder="little")
    blocks = -(-len(values) // 256)
    assert body[8 * blocks :].tolist() == bits.tolist()
    for begin in range(0, len(values), 256):
        block, found = values[begin : begin + 256], back[begin : begin + 256]
        for side in (block >= 0, block < 0):
            if side.any():
                mean = np.float32(block[side].sum() / side.sum())
                assert found[torch.from_numpy(side)].tolist() == pytest.approx([mean] * side.sum(), rel=1e-6)


def test_a_side_without_elements_has_level_0() -> None:
    levels = codecs.encode(torch.tensor([1.0, 3.0]), Codec("1-bit"))[:8].clone().view(torch.float32)
    assert levels.tolist() == [0, 2]
    levels = codecs.encode(torch.tensor([-1.0, -3.0]), Codec("1-bit"))[:8].clone().view(torch.float32)
    assert levels.tolist() == [-2, 0]


@given(vectors())
@example(torch.tensor([1.0, 0.75, -0.7499, 2**-6, -(2**-7), 0.99 * 2**-7, -0.0]))
def test_e3m0_sends_the_nearest_power_of_two(vector) -> None:
    """A number of three bits is 0 or 2⁰ to 2⁻⁶; of two that are as near, the larger."""
    back, levels = left_of(vector, Codec("e3m0")), np.array([0.0, *(2.0 ** -np.arange(6, -1, -1))])
    for begin in range(0, len(vector), 256):
        block = vector[begin : begin + 256].double().numpy()
        scale = np.abs(block).max(initial=0.0)
        nearest = [len(levels) - 1 - np.abs(levels[::-1] * scale - abs(x)).argmin() for x in block]
        expected = np.float32(np.sign(block) * levels[nearest] * scale)
        assert back[begin : begin + 256].tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["int8", "e3m0", "1-bit"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_shows_in_its_block_only(name: str, bad: float) -> None:
    vector = normal(600)
    clean = left_of(vector, Codec(name))
    vector[300] = bad
    back = left_of(vector, Codec(name))
    assert not back[300].isfinite()
    assert torch.equal(back[:256], clean[:256])
    assert torch.equal(back[512:], clean[512:])


@given(vectors(), ratios)
def test_top_k_by_sorting(vector, ratio) -> None:
    places = sorted(range(len(vector)), key=lambda place: (-abs(vector[place].item()), place))
    expected = torch.zeros_like(vector)
    for place in places[: layouts.kept(ratio, len(vector))]:
        expected[place] = vector[place]
    assert torch.equal(left_of(vector, Codec("top-k", ratio)), expected)


def test_top_k_takes_the_first_of_equals_and_what_is_no_number() -> None:
    assert left_of(torch.tensor([1.0, -2, 2, 2, -2]), Codec("top-k", 0.4)).tolist() == [0, -2, 2, 0, 0]
    vector = torch.tensor([torch.inf, 1, torch.nan, 2, torch.nan])
    assert str(left_of(vector, Codec("top-k", 0.4)).tolist()) == "[inf, 0.0, nan, 0.0, 0.0]"


@pytest.mark.slow
def test_random_k_takes_all_elements_equally_often_and_as_they_are() -> None:
    vector, codec, trials = normal(20) + 9, Codec("random-k", 0.25), 3000
    kept = torch.stack([left_of(vector, codec, seed) for seed in range(trials)])
    assert ((kept != 0).sum(1) == 5).all()
    assert ((kept == 0) | (kept == vector)).all()
    shares = (kept != 0).double().mean(0)
    assert (shares - 0.25).abs().max() < 5 * (0.25 * 0.75 / trials) ** 0.5
    together = ((kept[:, 0] != 0) & (kept[:, 1] != 0)).double().mean().item()
    assert together == pytest.approx(0.25 * 4 / 19, abs=5 * (0.053 * 0.947 / trials) ** 0.5)


# ------------------------------------------------------------------ error feedback

QUADRATIC = scenario(
    cluster__workers=2,
    workload={"problem": "quadratic", "dimension": 600},
    strategy="all-reduce",
    stop={"steps": 1},
)
LOSSY = [Codec(name, 0.05) for name in NAMES if name != "none"]


def simulated(config=QUADRATIC) -> RunningNode:
    """Worker 1 after a run that did not touch its random numbers."""
    simulation = Simulation(Plan.of(config))
    simulation.run()
    return simulation.nodes[1]


def fed(encoder: Encoder, inputs: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The bodies of a stream, and what they are decoded to."""
    bodies = [at_once(encoder.encode(vector)) for vector in inputs]
    return bodies, [at_once(decode(encoder.node, body, encoder.codec, 600)) for body in bodies]


@pytest.mark.parametrize("codec", LOSSY, ids=lambda codec: codec.name)
def test_error_feedback_sends_everything_in_the_end(codec: Codec) -> None:
    encoder = Encoder(simulated(), codec)
    inputs = [normal(600, seed) * (1 + seed) for seed in range(40)]
    _, decoded = fed(encoder, inputs)
    assert torch.allclose(sum(decoded) + encoder.residual, sum(inputs), atol=1e-3)
    assert all(torch.equal(vector, normal(600, seed) * (1 + seed)) for seed, vector in enumerate(inputs))


@pytest.mark.parametrize("codec", LOSSY, ids=lambda codec: codec.name)
def test_both_engines_send_the_same_bytes(codec: Codec) -> None:
    inputs = [normal(600, seed) for seed in range(5)]
    with real_nodes(QUADRATIC) as nodes:
        real = fed(Encoder(nodes[1], codec), inputs)
    predicted = fed(Encoder(simulated(), codec), inputs)
    for one, other in zip(real, predicted, strict=True):
        assert all(map(torch.equal, one, other))
    assert codec.name != "random-k" or not torch.equal(predicted[0][0][:8], predicted[0][1][:8])


@pytest.mark.parametrize("name", ["1-bit", "top-k", "random-k"])
def test_without_feedback_what_a_codec_loses_is_lost(name: str) -> None:
    """The mean of what is decoded comes to the input with feedback only: it is off by residual ÷ messages."""
    vector, times = normal(600), 400
    errors = {}
    for error_feedback in (True, False):
        encoder = Encoder(simulated(), Codec(name, 0.1), error_feedback)
        mean = sum(fed(encoder, [vector] * times)[1]) / times
        errors[error_feedback] = ((mean - vector).norm() / vector.norm()).item()
    assert errors[True] < 0.05
    assert errors[False] > 0.3


def test_none_passes_the_very_vector() -> None:
    node, vector = simulated(), normal(600)
    encoder = Encoder(node, Codec("none"))
    assert at_once(encoder.encode(vector)) is vector
    assert at_once(decode(node, vector, Codec("none"), 600)) is vector
    assert encoder.residual is None


# ------------------------------------------------------------------ the engines


@examples(0.5)
@given(names, ratios, st.integers(1, 700), st.sampled_from(list(DTYPES)))
def test_sizes_only_bodies_have_the_real_size(name, ratio, length, dtype) -> None:
    node = simulated(
        scenario(workload={"parameters": length, "dtype": dtype}, strategy="all-reduce", stop={"steps": 1})
    )
    codec, vector = Codec(name, ratio), node.initial_parameters()
    encoder = Encoder(node, codec)
    for _ in range(2):
        body = at_once(encoder.encode(vector))
        real = codecs.encode(torch.zeros(length, dtype=DTYPES[dtype]), codec, SEED)
        assert body.nbytes == real.nbytes
        back = at_once(decode(node, body, codec, length))
        assert isinstance(back, Sized)
        assert (len(back), back.nbytes) == (length, vector.nbytes)


def test_a_size_that_is_not_that_of_the_codec_is_an_error() -> None:
    node, codec = simulated(scenario(strategy="all-reduce", stop={"steps": 1})), Codec("int8")
    body = at_once(node.encode(node.initial_parameters(), codec))
    with pytest.raises(ValueError, match="1016 bytes are not 999 elements as int8 sends them"):
        at_once(node.decode(body, codec, 999))


@pytest.mark.parametrize("name", NAMES)
def test_whether_numbers_matter_or_not_as_many_are_drawn(name: str) -> None:
    sized, learning = simulated(scenario(strategy="all-reduce", stop={"steps": 1})), simulated()
    fresh = sized.rng.getstate()
    for node in (sized, learning):
        at_once(node.encode(node.initial_parameters(), Codec(name)))
    assert sized.rng.getstate() == learning.rng.getstate()
    assert (sized.rng.getstate() == fresh) == (name != "random-k")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [0, 1, 300, 70_001])
def test_encoded_and_plain_bodies_cross_the_network(dtype: str, length: int) -> None:
    config = scenario(
        cluster__workers=2, workload={"parameters": 70_001, "dtype": dtype}, strategy="all-reduce"
    )
    with real_nodes(config) as (one, other):
        vector = normal(70_001).to(DTYPES[dtype])[:length]
        for name in NAMES:
            codec = Codec(name, 0.5)
            body = at_once(one.encode(vector, codec))
            one.send(other.rank, "encoded", body)
            one.send(other.rank, "plain", vector)
            arrived = received(other, "encoded").body
            assert arrived.dtype == body.dtype
            assert torch.equal(arrived, body)
            back = at_once(other.decode(arrived, codec, length))
            assert torch.equal(back, at_once(one.decode(body, codec, length)))
            plain = received(other, "plain").body
            assert plain.dtype == DTYPES[dtype]
            assert torch.equal(plain, vector)


def received(node: RunningNode, kind: str) -> Message:
    waiting = node.receive(kind)
    if isinstance(waiting, Event):
        node.port.until(waiting)
    return at_once(waiting)


@pytest.mark.slow
def test_a_sizes_only_simulation_with_a_codec_loads_no_torch() -> None:
    code = """
import sys, lockstep
from lockstep.strategies import STRATEGIES, Strategy
from lockstep.strategies.codecs import NAMES, Codec, Encoder

async def sending(node):
    for name in NAMES:
        body = await Encoder(node, Codec(name)).encode(node.initial_parameters())
        await node.send(node.rank, name, body)

STRATEGIES["sending"] = Strategy(sending)
records = lockstep.simulate(lockstep.load("sizes-only", ["strategy=sending"])).records
print(len(records), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, torch_is_there = done.stdout.split()
    assert int(count) % len(NAMES) == 0
    assert torch_is_there == "False"


# ------------------------------------------------------------------ strategies


def pushing(**strategy: object) -> Scenario:
    """Two shards of 300 elements in two chunks each."""
    return scenario(
        cluster__workers=2, cluster__servers=2, workload={"problem": "logistic", "dimension": 600},
        strategy={"name": "synchronous", "chunks": 2, "learning_rate": 0.1, **strategy}, stop={"steps": 4},
    )  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize("codec", drawn(LOSSY, one_in=2), ids=lambda codec: codec.name)
def test_both_engines_end_with_the_same_bits(codec: Codec) -> None:
    config = pushing(codec=codec.name, codec_ratio=codec.ratio)
    predicted, measured = lockstep.simulate(config), lockstep.run(config)
    assert np.array_equal(predicted.parameters, measured.parameters)
    assert predicted.metrics["bytes_sent"] == measured.metrics["bytes_sent"]
    for records in (predicted.records, measured.records):
        pushes = records[records["kind"] == "push"]
        assert len(pushes) == 2 * 4 * 4
        assert set(pushes["nbytes"]) == {layouts.nbytes(codec, 150, 4)}


def test_all_elements_are_none() -> None:
    plain = lockstep.simulate(pushing()).parameters
    assert np.array_equal(lockstep.simulate(pushing(codec="top-k", codec_ratio=1.0)).parameters, plain)
    some = lockstep.simulate(pushing(codec="top-k")).parameters
    without = lockstep.simulate(pushing(codec="top-k", error_feedback=False)).parameters
    assert np.isfinite([some, without]).all()
    assert not np.array_equal(some, plain)
    assert not np.array_equal(some, without)
