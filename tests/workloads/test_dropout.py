"""Dropout by sample: however a mini-batch or a model is cut, each sample has the masks of the whole."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lockstep
from lockstep.scenarios import ScenarioError
from lockstep.workloads import models
from lockstep.workloads.dropout import BySample, Samples, by_sample, computing, random_layers
from tests.support.nightly import drawn
from tests.support.split_jobs import apart, job, parameters

BY_SAMPLE = {"dataset": "digits", "model": "cnn", "batch_size": 16, "dropout": "sample"}
CUTS: dict[str, dict[str, Any]] = {
    "two micro-batches": {"micro_batches": 2},
    "four micro-batches": {"micro_batches": 4},
    "recomputed": {"micro_batches": 4, "recompute": True},
    "two stages": {"pipeline": 2, "micro_batches": 1},
    "two stages, two micro-batches": {"pipeline": 2},
    "channels, summed": {"tensor": 2, "micro_batches": 1},
    "channels, put together": {"tensor": 3, "convolutions": "all-gather"},
    "rows": {"tensor": 2, "convolutions": "halo"},
    "rows, stages, zero-bubble": {
        **{"tensor": 2, "pipeline": 2, "convolutions": "halo"},
        **{"order": "zero-bubble", "micro_batches": 4},
    },
}


def after(replicas: int, steps: int = 20, **split: Any) -> np.ndarray:
    strategy = {"name": "all-reduce", "learning_rate": 0.1}
    return parameters(job(replicas, "cnn", steps, strategy, BY_SAMPLE, **split))


@cache
def in_one_piece(replicas: int) -> np.ndarray:
    return after(replicas, micro_batches=1)


@pytest.mark.parametrize("cut", drawn(CUTS, 2))
def test_a_cut_run_is_where_the_run_in_one_piece_is(cut: str) -> None:
    assert apart(after(1, **CUTS[cut]), in_one_piece(1)) < 1e-5


def test_replicas_have_masks_of_their_own() -> None:
    assert apart(after(2, micro_batches=4), in_one_piece(2)) < 1e-5
    assert apart(in_one_piece(2), in_one_piece(1)) > 1e-3


def test_by_micro_batch_cuts_matter() -> None:
    """So the runs above would be apart if masks were not the samples'."""
    usual = BY_SAMPLE | {"dropout": "micro-batch"}
    strategy = {"name": "all-reduce", "learning_rate": 0.1}
    one, two = (parameters(job(1, "cnn", 20, strategy, usual, micro_batches=parts)) for parts in (1, 2))
    assert apart(one, two) > 1e-3


@pytest.mark.real
@pytest.mark.parametrize("cut", drawn(CUTS, 9))
def test_real_processes_come_to_the_simulators_bits(cut: str) -> None:
    scenario = job(1, "cnn", 4, "all-reduce", BY_SAMPLE, **CUTS[cut])
    predicted, measured = lockstep.simulate(scenario), lockstep.run(scenario)
    np.testing.assert_array_equal(measured.parameters, predicted.parameters)


def test_a_mask_is_that_of_its_sample() -> None:
    layer, x = BySample(0.25, 0, whole=False), torch.ones(8, 3, 100)
    with computing(Samples(1, 0, 0, 0)):
        whole = layer(x)
    with computing(Samples(1, 0, 0, 6)):
        torch.testing.assert_close(layer(x[:2]), whole[6:], rtol=0, atol=0)
    assert sorted({*whole.flatten().tolist()}) == [0, pytest.approx(4 / 3)]
    assert 0.2 < (whole == 0).float().mean() < 0.3
    assert not torch.equal(whole[0], whole[1])
    for other in (Samples(2, 0, 0, 0), Samples(1, 1, 0, 0), Samples(1, 0, 1, 0)):
        with computing(other):
            assert not torch.equal(layer(x), whole)
    with computing(Samples(1, 0, 0, 0)):
        assert not torch.equal(BySample(0.25, 1, whole=False)(x), whole)
    assert torch.equal(layer.eval()(x), x)


def test_stochastic_depth_drops_whole_samples() -> None:
    model = models.build("convnext_tiny", (3, 32, 32), 10, seed=1)
    before = [name for name, _ in random_layers(model)]
    by_sample(model)
    layers = [module for _, module in random_layers(model)]
    assert [name for name, _ in random_layers(model)] == before
    assert len(layers) == 17
    assert all(isinstance(each, BySample) and isinstance(each, nn.Dropout) for each in layers)
    with computing(Samples(1, 0, 0, 0)):
        found = layers[-1](torch.ones(64, 2, 3, 3)).flatten(1)
    assert (found == found[:, :1]).all()
    assert 0 < (found[:, 0] == 0).sum() < 64


def test_where_nothing_is_learned_it_warns() -> None:
    warnings = lockstep.simulate(job(1, "cnn", 2, workload=BY_SAMPLE | {"learning": False})).warnings
    assert "workload.dropout means nothing where nothing is learned: ignored" in warnings


def test_a_model_without_dropout_is_refused() -> None:
    with pytest.raises(ScenarioError, match="the model mlp has no dropout") as error:
        lockstep.simulate(job(1, "mlp", workload=BY_SAMPLE | {"model": "mlp"}))
    assert error.value.key == "workload.dropout"
