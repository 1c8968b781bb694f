"""Optimizers against torch's, learning rates against closed forms, corrections against their formulas."""

from math import cos, pi, sqrt
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from lockstep.job.arithmetic import OnTensors
from lockstep.job.sized import Sized
from lockstep.strategies.corrections import (
    Arrival,
    Correction,
    delay_compensated,
    rate_over_staleness,
    scaled_by_distance,
    scaled_by_staleness,
)
from lockstep.strategies.multiple import Multiple
from lockstep.strategies.optimizers import Age, Transformation, block_momentum, optimizer, server_optimizer
from lockstep.strategies.touched import passes_of_step

RATE = 0.03
TIGHT = 1e-12  # float64


DECAYING = [
    ("sgd", torch.optim.SGD, {}),
    ("nesterov", torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    ("adagrad", torch.optim.Adagrad, {}),
    ("rmsprop", torch.optim.RMSprop, {}),
    ("adam", torch.optim.Adam, {}),
]


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (optimizer(learning_rate=RATE), lambda x: torch.optim.SGD(x, RATE)),
        (optimizer(learning_rate=RATE, momentum=0.8), lambda x: torch.optim.SGD(x, RATE, momentum=0.8)),
        (
            optimizer(optimizer="momentum", learning_rate=RATE),
            lambda x: torch.optim.SGD(x, RATE, momentum=0.9),
        ),
        (
            optimizer(optimizer="nesterov", learning_rate=RATE, momentum=0.8),
            lambda x: torch.optim.SGD(x, RATE, momentum=0.8, nesterov=True),
        ),
        (optimizer(optimizer="adagrad", learning_rate=RATE), lambda x: torch.optim.Adagrad(x, RATE)),
        (optimizer(optimizer="adagrad"), torch.optim.Adagrad),
        (optimizer(optimizer="rmsprop", learning_rate=RATE), lambda x: torch.optim.RMSprop(x, RATE)),
        (
            optimizer(optimizer="adam", learning_rate=RATE, momentum=0.7),
            lambda x: torch.optim.Adam(x, RATE, betas=(0.7, 0.999)),
        ),
        (optimizer(optimizer="adam"), torch.optim.Adam),
        (
            optimizer(optimizer="adamw", learning_rate=RATE, weight_decay=0.2),
            lambda x: torch.optim.AdamW(x, RATE, weight_decay=0.2),
        ),
        (optimizer(optimizer="adamw"), torch.optim.AdamW),
        *(
            (
                optimizer(optimizer=name, learning_rate=RATE, weight_decay=0.2),
                lambda x, kind=kind, more=more: kind(x, RATE, weight_decay=0.2, **more),
            )
            for name, kind, more in DECAYING
        ),
    ],
    ids=["sgd", "momentum", "momentum by name", "nesterov", "adagrad", "adagrad as it is", "rmsprop",
         "adam", "adam as it is", "adamw", "adamw as it is", *(f"{name} decays" for name, _, _ in DECAYING)],
)  # fmt: skip
def test_steps_are_those_of_torch(ours: Transformation, theirs) -> None:
    parameters = random(7)
    variable = torch.nn.Parameter(parameters.clone())
    reference = theirs([variable])
    state = ours.initial
    for gradient in random(50, 7):
        step, state = ours.step(gradient, state, parameters)
        parameters = parameters + step
        variable.grad = gradient.clone()
        reference.step()
        assert torch.allclose(parameters, variable, rtol=TIGHT, atol=TIGHT)
    assert state[0] in (Age(), Age(50, 50))  # plain SGD need not count
    assert len(state) == len(ours.initial)


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adagrad", "rmsprop"])
def test_a_server_takes_a_move_for_a_descent(name: str) -> None:
    made = server_optimizer(server_optimizer=name, server_learning_rate=RATE, server_momentum=0.8)
    plain = optimizer(optimizer=name, learning_rate=RATE, momentum=0.8)
    state, other = made.initial, plain.initial
    for delta in random(5, 7):
        step, state = made.step(delta, state, delta)
        expected, other = plain.step(-delta, other, delta)
        assert torch.equal(0 + step, 0 + expected)


def test_the_server_s_adam_is_fedadam() -> None:
    """Reddi et al. 2021, algorithm 2: m and v as they are, β₂ = 0.99, τ = 1e-3, v₋₁ = τ²."""
    made = server_optimizer(server_optimizer="adam", server_learning_rate=RATE, server_momentum=0.8)
    state = made.initial
    m = torch.zeros(7, dtype=torch.float64)
    v = m + 1e-6
    for delta in 0.01 * random(5, 7):
        step, state = made.step(delta, state, delta)
        m, v = 0.8 * m + 0.2 * delta, 0.99 * v + 0.01 * delta**2
        assert torch.allclose(0 + step, RATE * m / (v.sqrt() + 1e-3), rtol=TIGHT, atol=TIGHT)


def test_a_mean_is_stepped_along_in_one_rounding_wherever_a_shard_begins() -> None:
    total, parameters = random(1000).float(), random(1000).float() + 1
    once = parameters.add(total, alpha=-RATE * (1 / 3))
    found = []
    for part in (slice(0, 13), slice(13, 1000)):
        step, _ = optimizer(learning_rate=RATE).step(Multiple(1 / 3, total[part]), (), parameters[part])
        found.append(parameters[part] + step)
    assert torch.equal(torch.cat(found), once)


def test_a_multiple_is_the_vector_that_it_stands_for() -> None:
    a, b = random(2, 7)
    multiple, product = Multiple(0.3, a), 0.3 * a
    for found, expected in (
        (0 + multiple, product),
        (multiple + 0.0, product),
        (b + multiple, b + product),
        (multiple + b, b + product),
        (b - multiple, b - product),
        (multiple - b, product - b),
        (multiple + multiple, 2 * product),
        (0 + (2 * multiple * multiple / b), 2 * product * product / b),
        (0 + (-multiple * b / 4), -product * b / 4),
    ):
        assert torch.allclose(found, expected, rtol=TIGHT, atol=TIGHT)


def test_parts_are_added_as_if_they_were_put_together_first() -> None:
    parameters, gradient = random(2, 1000).float()
    slices = [slice(0, 13), slice(13, 500), slice(500, 1000)]
    steps = [Multiple(-RATE, gradient[place]) for place in slices[:2]] + [gradient[slices[2]]]
    expected = torch.cat([parameters[place] + step for place, step in zip(slices, steps, strict=True)])
    before = parameters.clone()
    assert torch.equal(OnTensors(parameters).add_parts(parameters, slices, steps), expected)
    assert torch.equal(parameters, before)


def test_a_multiple_of_another_length_is_refused_where_only_lengths_are_known() -> None:
    with pytest.raises(ValueError, match="3 and 4 elements do not combine"):
        _ = Sized(3, 4) + Multiple(0.1, Sized(4, 4))


def test_a_server_without_optimizer_adds_the_delta() -> None:
    none, sgd = server_optimizer(), server_optimizer(server_optimizer="sgd")
    delta = random(7)
    for made in (none, sgd):
        assert torch.equal(0 + made.step(delta, made.initial, delta)[0], delta)


# Learning rates: how far the t-th step goes along a gradient of 1.


def rates(steps: int, **chosen) -> list[float]:
    made = optimizer(learning_rate=RATE, **chosen)
    state, found, one = made.initial, [], torch.ones((), dtype=torch.float64)
    for _ in range(steps):
        step, state = made.step(one, state, one)
        found.append(-(0 + step).item() / RATE)
    return found


@pytest.mark.parametrize(
    ("decay", "at"),
    [
        ("constant", lambda t: 1),
        ("linear", lambda t: max(0, 1 - t / 4)),
        ("cosine", lambda t: (1 + cos(pi * t / 4)) / 2 if t < 4 else 0),
        ("step", lambda t: [1, 0.1, 0.01][t // 4]),
        ("inverse-sqrt", lambda t: 1 / sqrt(1 + t / 4)),
    ],
)
def test_decay(decay: str, at) -> None:
    expected = [at(t) for t in range(10)]
    assert rates(10, decay=decay, decay_steps=4) == pytest.approx(expected, rel=TIGHT, abs=TIGHT)
    after_warmup = rates(13, decay=decay, decay_steps=4, warmup_steps=3)
    assert after_warmup == pytest.approx([1 / 3, 2 / 3, 1, *expected], rel=TIGHT, abs=TIGHT)


OF_TORCH = [
    ({"decay": "cosine", "decay_steps": 12, "eta_min": RATE / 5},
     lambda o: lr_scheduler.CosineAnnealingLR(o, 12, eta_min=RATE / 5)),
    ({"decay": "linear", "decay_steps": 8, "eta_min": RATE / 4},
     lambda o: lr_scheduler.LinearLR(o, 1.0, 0.25, total_iters=8)),
    ({"decay": "step", "decay_steps": 5, "gamma": 0.3}, lambda o: lr_scheduler.StepLR(o, 5, gamma=0.3)),
    ({"decay": "multi-step", "milestones": [2, 7], "gamma": 0.5},
     lambda o: lr_scheduler.MultiStepLR(o, [2, 7], gamma=0.5)),
    ({"decay": "exponential", "gamma": 0.9}, lambda o: lr_scheduler.ExponentialLR(o, 0.9)),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), OF_TORCH, ids=[ours["decay"] for ours, _ in OF_TORCH])
@pytest.mark.parametrize("warmup", [0, 4])
def test_rates_are_those_of_torch_s_schedulers(ours: dict[str, Any], theirs, warmup: int) -> None:
    """A warm-up of w steps is LinearLR from 1/w, and SequentialLR has the other scheduler after it."""
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], RATE)
    schedule = theirs(sgd)
    if warmup:
        rising = lr_scheduler.LinearLR(sgd, 1 / warmup, total_iters=warmup - 1)
        schedule = lr_scheduler.SequentialLR(sgd, [rising, schedule], milestones=[warmup])
    expected = []
    for _ in range(12 + warmup):
        expected.append(schedule.get_last_lr()[0] / RATE)
        sgd.step()
        schedule.step()
    assert rates(12 + warmup, **ours, warmup_steps=warmup) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("most", [0.5, 100.0])
def test_a_gradient_is_clipped_as_torch_does(name: str, most: float) -> None:
    """Weights decay after the clipping, as where torch's clip_grad_norm_ is called before the step."""
    made = optimizer(optimizer=name, learning_rate=RATE, weight_decay=0.1, max_grad_norm=most)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name]
    parameters = random(7)
    variable = torch.nn.Parameter(parameters.clone())
    reference, state = kind([variable], RATE, weight_decay=0.1), made.initial
    for gradient in random(9, 7):
        step, state = made.step(Multiple(0.5, 2 * gradient), state, parameters)
        parameters = parameters + step
        variable.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_([variable], most)
        reference.step()
    assert torch.allclose(parameters, variable, rtol=TIGHT, atol=TIGHT)


def test_a_clipped_step_reads_the_gradient_once_more() -> None:
    plain, clipped = optimizer(optimizer="adam"), optimizer(optimizer="adam", max_grad_norm=1.0)
    assert passes_of_step(clipped) == passes_of_step(plain) + 1


def test_the_rate_decays_for_every_optimizer() -> None:
    for name in ("momentum", "nesterov", "adagrad", "rmsprop", "adam"):
        made = optimizer(optimizer=name, decay="linear", decay_steps=3)
        whole = optimizer(optimizer=name)
        state = other = made.initial
        for t, gradient in enumerate(random(4, 7)):
            step, state = made.step(gradient, state, gradient)
            full, other = whole.step(gradient, other, gradient)
            assert torch.allclose(0 + step, (0 + full) * max(0, 1 - t / 3), rtol=TIGHT, atol=TIGHT), name


@pytest.mark.parametrize("name", ["momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"])
def test_a_fresh_state_forgets_gradients_and_goes_on_in_the_schedule(name: str) -> None:
    made, whole = (optimizer(optimizer=name, **how) for how in ({"decay": "linear", "decay_steps": 8}, {}))
    gradient, parameters = random(2, 7)
    step, state = made.step(gradient, made.afresh(6), parameters)
    first, _ = whole.step(gradient, whole.initial, parameters)
    assert torch.allclose(0 + step, (0 + first) * (1 - 6 / 8), rtol=TIGHT, atol=TIGHT)
    assert state[0] == Age(job=7, state=1)


# Corrections, with the numbers of their formulas.


def corrected(correction: Correction, update: list[float], staleness: int, moved: list[float]) -> list[float]:
    now = random(len(moved))
    pulled = now - torch.tensor(moved, dtype=torch.float64)
    found, _ = correction.correct(
        torch.tensor(update, dtype=torch.float64), Arrival(staleness, now, pulled), correction.initial
    )
    return found.tolist()


def test_corrections() -> None:
    assert corrected(scaled_by_staleness(), [6, -3], 2, [0, 0]) == [2, -1]
    assert corrected(rate_over_staleness(), [6, -3], 3, [0, 0]) == [2, -1]
    assert corrected(rate_over_staleness(), [6, -3], 1, [0, 0]) == [6, -3]
    distance = corrected(scaled_by_distance(learning_rate=0.5), [6, -3], 1, [1, 2])
    assert distance == pytest.approx([6 / (1 / 0.5 + 1), -3 / (4 / 0.5 + 1)])
    constant = corrected(delay_compensated(), [6, -3], 1, [1, 2])
    assert constant == pytest.approx([6 + 0.04 * 36 * 1, -3 + 0.04 * 9 * 2])
    adaptive = corrected(delay_compensated(adaptive_compensation=True), [6, -3], 1, [1, 2])
    expected = [6 + 2 / sqrt(0.05 * 36 + 1e-7) * 36, -3 + 2 / sqrt(0.05 * 9 + 1e-7) * 9 * 2]
    assert adaptive == pytest.approx(expected)


def test_the_adaptive_compensation_remembers_a_twentieth() -> None:
    correction = delay_compensated(compensation=1.0, adaptive_compensation=True)
    arrival = Arrival(1, torch.tensor([3.0]), torch.tensor([1.0]))
    state = correction.initial
    for gradient, mean_square in [(2.0, 0.05 * 4), (1.0, 0.95 * 0.05 * 4 + 0.05)]:
        update, state = correction.correct(torch.tensor([gradient]), arrival, state)
        assert state.tolist() == pytest.approx([mean_square])
        expected = gradient + gradient**2 * 2 / sqrt(mean_square + 1e-7)
        assert update.tolist() == pytest.approx([expected])


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"])
@pytest.mark.parametrize("server", [False, True])
def test_a_rate_is_not_divided_away(name: str, server: bool) -> None:
    """A gradient at half the rate makes half of its part in all steps, now and, remembered, later."""
    if server and name == "adamw":
        return
    made = server_optimizer(server_optimizer=name) if server else optimizer(optimizer=name, weight_decay=0)
    later = random(3, 7)
    for slowed, plain in ((0.5, True), (0.5, False)):
        gradients = torch.stack([slowed * later[0], *later[1:]])
        states, steps = [made.initial] * 3, [0.0] * 3
        for number in range(3):
            size = later[number] if plain else None
            for who, gradient in enumerate((later[number], gradients[number], later[number] * (number > 0))):
                whole = size if who else None
                step, states[who] = made.step(gradient, states[who], 0 * gradient, whole)
                steps[who] = steps[who] + step
        # between taking it in full and not at all, exactly in the middle
        halfway = torch.allclose(steps[1], (steps[0] + steps[2]) / 2, rtol=1e-9, atol=1e-9)
        assert halfway == (plain or not made.normalises)


@pytest.mark.parametrize(
    "correction",
    [
        scaled_by_staleness(),
        rate_over_staleness(),
        scaled_by_distance(),
        delay_compensated(),
        delay_compensated(adaptive_compensation=True),
    ],
)
def test_a_fresh_update_is_left_as_it_is(correction: Correction) -> None:
    update = random(5).tolist()
    assert corrected(correction, update, 0, [0.0] * 5) == update


@pytest.mark.parametrize("nesterov", [False, True])
def test_block_momentum(nesterov: bool) -> None:
    """G is how far workers move from where they start, W or W + ηΔ: Δ ← ηΔ + ζG, W ← W + Δ."""
    made, eta, zeta = block_momentum(0.75, 0.8, nesterov), 0.75, 0.8
    state = made.initial
    w, delta = random(3), torch.zeros(3, dtype=torch.float64)
    ours = w
    for moved in random(6, 3):
        start = w + eta * delta if nesterov else w
        if made.ahead is not None:
            assert torch.allclose(ours + made.ahead(state), start, rtol=TIGHT, atol=TIGHT)
        step, state = made.step(moved, state, ours)
        ours = ours + step
        delta = eta * delta + zeta * (start + moved - start)
        w = w + delta
        assert torch.allclose(ours, w, rtol=TIGHT, atol=TIGHT)
