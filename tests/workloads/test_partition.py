"""Who has which samples: all dealt out once, evenly or by label; in both engines the same."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import cli, scenarios
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.workload import Dirichlet, Labels, Partition
from lockstep.workloads import build, seeds
from lockstep.workloads.partition import deal
from tests.support.nightly import drawn
from tests.support.scenarios import scenario

DIGITS = {"dataset": "digits", "batch_size": 16}


def labels_of(samples: int, classes: int, seed: int = 0) -> np.ndarray:
    """Labels that are not equally frequent; each occurs."""
    rng = np.random.default_rng(seed)
    rare = rng.integers(0, classes, samples) * rng.integers(0, 2, samples)
    rare[:classes] = np.arange(classes)
    return rare


partitions = st.one_of(
    st.just("iid"),
    st.builds(lambda alpha: Dirichlet(dirichlet=alpha), st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 1e6])),
    st.builds(lambda labels: Labels(labels=labels), st.integers(1, 3)),
)


@given(partitions, st.integers(1, 12), st.integers(0, 80), st.integers(0, 50))
def test_every_sample_is_dealt_out_once_and_everybody_has_one(
    partition: Partition, workers: int, more: int, seed: int
) -> None:
    labels = labels_of(3 * workers + more, 3, seed)
    shares = deal(labels, workers, seed, partition)
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(labels)))
    assert len(shares) == workers
    assert min(map(len, shares)) >= 1
    again = deal(labels, workers, seed, partition)
    assert [share.tolist() for share in shares] == [share.tolist() for share in again]
    if partition == "iid" or isinstance(partition, Labels):
        each = 1 if partition == "iid" else partition.labels
        assert max(map(len, shares)) - min(map(len, shares)) <= each


def test_iid_is_a_permutation_dealt_out_like_cards() -> None:
    order = seeds.generator(3, "shards").permutation(1437)
    for worker, share in enumerate(deal(np.zeros(1437), 5, seed=3)):
        assert share.tolist() == order[worker::5].tolist()


@pytest.mark.parametrize("partition", ["iid", Dirichlet(dirichlet=0.5), Labels(labels=2)], ids=str)
def test_another_seed_deals_otherwise(partition: Partition) -> None:
    labels = labels_of(500, 10)
    one, other = (deal(labels, 4, seed, partition) for seed in (1, 2))
    assert sorted(one[0].tolist()) != sorted(other[0].tolist())


@pytest.mark.parametrize("each", [1, 2, 3])
def test_so_many_labels_each_where_pieces_have_one_label(each: int) -> None:
    """10 labels of 120 samples, 20 workers: 2, 4 or 6 pieces a label."""
    labels = np.arange(1200) % 10
    shares = deal(labels, 20, 1, Labels(labels=each))
    counts = [len(np.unique(labels[share])) for share in shares]
    assert max(counts) <= each
    assert np.mean(counts) > 0.8 * each  # a worker may be dealt two pieces of one label
    assert {len(share) for share in shares} == {60}


def test_a_label_that_ends_inside_a_piece_adds_one() -> None:
    labels = labels_of(1000, 10)
    for share in deal(labels, 10, 1, Labels(labels=2)):
        assert len(np.unique(labels[share])) <= 4 + 2  # rare labels are shorter than a piece


@pytest.mark.slow
@pytest.mark.parametrize("alpha", drawn([0.1, 0.5, 10.0], one_in=3))
def test_shares_vary_as_dirichlet_says(alpha: float) -> None:
    """A share of Dirichlet(α, … α) over n has mean 1/n and variance (1/n)(1 − 1/n) / (nα + 1)."""
    n, classes, each = 4, 1500, 200
    labels = np.repeat(np.arange(classes), each)
    shares = deal(labels, n, 1, Dirichlet(dirichlet=alpha))
    share = np.bincount(labels[shares[0]], minlength=classes) / each
    assert share.mean() == pytest.approx(1 / n, abs=0.03)
    assert share.var() == pytest.approx((1 / n) * (1 - 1 / n) / (n * alpha + 1), rel=0.12)


def test_nobody_is_left_with_nothing() -> None:
    shares = deal(np.zeros(40), 30, 1, Dirichlet(dirichlet=1e-6))  # one worker draws all
    assert sorted(map(len, shares)) == [1] * 29 + [11]


@pytest.mark.parametrize(
    ("workers", "partition", "key", "problem"),
    [
        (11, Labels(labels=10), "workload.partition.labels", "11 workers with 10 labels each .* at most 9"),
        (
            2,
            Labels(labels=11),
            "workload.partition.labels",
            "must be at most 10, as there are labels, not 11",
        ),
        (101, "iid", "cluster.workers", "101 workers cannot share the 100 samples"),
        (101, Dirichlet(dirichlet=1), "cluster.workers", "101 workers cannot share the 100 samples"),
    ],
)
def test_what_cannot_be_dealt_out(workers: int, partition: Partition, key: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem) as caught:
        deal(labels_of(100, 10), workers, 1, partition)
    assert caught.value.key == key


# ------------------------------------------------------------------ from a scenario


def test_a_scenario_says_it_and_keeps_it(tmp_path: Path) -> None:
    for partition in ({"dirichlet": 0.5}, {"labels": 2}, "iid"):
        config = scenario(workload={**DIGITS, "partition": partition})
        (tmp_path / "kept.yaml").write_text(scenarios.dump(config))
        assert scenarios.load(tmp_path / "kept.yaml") == config
    assert scenario(workload=DIGITS) == scenario(workload={**DIGITS, "partition": "iid"})


def test_the_labels_of_the_data_set_count() -> None:
    for form, classes in ((DIGITS, 10), ({"problem": "logistic"}, 2)):
        config = scenario(workload={**form, "partition": {"labels": 1}})
        learner = build(config.workload, workers=classes, seed=1)
        labels = getattr(learner, "train_y", None)
        labels = learner._train.tensors[1] if labels is None else labels
        for share in learner._batches.shares:
            counts = labels[share].long().bincount(minlength=classes)
            assert counts.max() > 0.7 * counts.sum()  # a label may end inside a piece


def test_bad_input_is_one_line_and_exit_2(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "bad.yaml").write_text(scenarios.dump(scenario(workload=DIGITS)))
    override = ["--set", "workload.partition={labels: 20}"]
    monkeypatch.setattr(sys, "argv", ["lockstep", "simulate", str(tmp_path / "bad.yaml"), *override])
    with pytest.raises(SystemExit) as leave:
        cli.main()
    assert leave.value.code == 2
    *_, said = capsys.readouterr().err.splitlines()
    problem = "workload.partition.labels: must be at most 10, as there are labels, not 20"
    assert said == f"error: {override[0]} {override[1]}: {problem}"


@pytest.mark.real
def test_both_engines_deal_out_the_same() -> None:
    learning = {**DIGITS, "partition": {"labels": 2}}
    changes = {"cluster__workers": 2, "strategy": "synchronous", "stop": {"steps": 3}}
    config = scenario(workload=learning, **changes)
    predicted, measured = lockstep.simulate(config), lockstep.run(config)
    assert np.array_equal(predicted.parameters, measured.parameters)
    iid = lockstep.simulate(scenario(workload=DIGITS, **changes))
    assert not np.array_equal(predicted.parameters, iid.parameters)


def test_where_nothing_is_learned_it_is_ignored_aloud(engine) -> None:
    sized = {**DIGITS, "learning": False, "partition": {"labels": 2}}
    warnings = engine(scenario(cluster__workers=1, workload=sized, stop={"steps": 1})).metrics["warnings"]
    assert "workload.partition means nothing where nothing is learned: ignored" in warnings
