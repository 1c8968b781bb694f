"""A transformer is what it says, sees nothing that comes later, and learns."""

import json
from typing import Any

import pytest
import torch

import lockstep
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.workload import Transformer
from lockstep.workloads import build, sentences, sizes
from lockstep.workloads.classifier import Classifier
from lockstep.workloads.layers import layers

SMALL = {"model": "transformer", "dataset": "sentences", "sequence": 16, "hidden": 16, "batch_size": 8}


def transformer(**values: Any) -> Transformer:
    return Transformer.model_validate(SMALL | values)


def test_the_layers_of_gpt_2_by_hand() -> None:
    """With Radford et al.'s sizes: parameters and products, a multiply-add as two."""
    size = {"layers": 12, "hidden": 768, "heads": 12, "sequence": 1024, "vocabulary": 50_257}
    work = Transformer.model_validate({"model": "transformer", "batch_size": 2} | size)
    assert not work.learns
    h, t, v = 768, 1024, 50_257
    found = layers(work)
    assert [layer.name for layer in found][:3] == ["embedding", "block0.attention", "block0.feed_forward"]
    assert len(found) == 1 + 2 * 12 + 2
    assert [layer.parameters for layer in found[:3]] == [
        v * h + t * h, 2 * h + 3 * h * h + 3 * h + h * h + h, 2 * h + 8 * h * h + 5 * h,
    ]  # fmt: skip
    assert [layer.parameters for layer in found[-2:]] == [2 * h, h * v]
    forward = [0, 2 * t * 4 * h * h + 4 * t * t * h, 2 * t * 8 * h * h]
    assert [layer.forward_flops for layer in found[:3]] == forward
    assert [layer.backward_flops for layer in found[:3]] == [2 * each for each in forward]
    assert {layer.output for layer in found[:-1]} == {t * h}
    whole = sizes(work)
    assert whole.parameters == 124_439_808 + h * v  # GPT-2's, but for a head of its own
    assert whole.samples is None
    assert whole.flops == 2 * 3 * (12 * sum(forward) + 2 * t * h * v)


def test_no_position_sees_later_ones() -> None:
    learner = build(transformer(), 1, 0)
    assert isinstance(learner, Classifier)
    x, _ = learner.batch(0, 0)
    other = x.clone()
    other[:, 9:] = (other[:, 9:] + 1) % 30
    one, two = learner.module(x), learner.module(other)
    assert torch.equal(one[:, :9], two[:, :9])
    assert not torch.isclose(one[:, 9:], two[:, 9:]).all(-1).any()


def test_labels_are_the_next_characters_and_no_character_is_both_learned_and_held_out() -> None:
    learner = build(transformer(), 1, 0)
    assert isinstance(learner, Classifier)
    for x, y in (learner._train.tensors, learner._test.tensors):
        assert torch.equal(x[:, 1:], y[:, :-1])
        assert torch.equal(x[1:, 0], y[:-1, -1])
    assert len(learner._train.tensors[0]) * 16 == sentences.TRAIN
    assert len(learner._test.tensors[0]) * 16 == sentences.TEST
    text = sentences.text().characters
    read = "".join(sentences.ALPHABET[number] for number in learner._test.tensors[0].flatten().tolist())
    assert read == text[sentences.TRAIN : sentences.TRAIN + sentences.TEST]


def test_the_text() -> None:
    """The same everywhere: figures and bits depend on it."""
    text = sentences.text()
    assert len(text.characters) == sentences.TRAIN + sentences.TEST + 1
    assert set(text.characters) == set(sentences.ALPHABET)
    assert text.characters.startswith("every zebra that sleeps today ")
    assert text.entropy == pytest.approx(0.43, abs=0.01)  # nats a character, as docs/workload.md says


@pytest.mark.slow
def test_it_learns_and_does_not_beat_the_entropy() -> None:
    learner = build(transformer(sequence=32, hidden=32, batch_size=16), 1, 0)
    parameters = learner.initial()
    mean, square = torch.zeros_like(parameters), torch.zeros_like(parameters)
    for step in range(300):  # Adam
        gradient = learner.gradient(parameters, 0, step)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        rise = 1 - 0.999 ** (step + 1)
        parameters = parameters - 0.005 * mean / (1 - 0.9 ** (step + 1)) / ((square / rise).sqrt() + 1e-8)
    found = learner.evaluate(parameters)
    assert sentences.text().entropy < found.loss < 1.2
    assert found.accuracy is not None
    assert found.accuracy > 0.55  # 0.17 are spaces, the commonest character


@pytest.mark.parametrize(
    ("values", "key", "said"),
    [
        ({"heads": 3}, "workload.heads", "must divide workload.hidden (16), not 3"),
        ({"dataset": None}, "workload.vocabulary", "missing; give the number of different tokens"),
        ({"vocabulary": 10}, "workload.vocabulary", "must be at least 30, as many as the text has"),
        ({"sequence": 10_000}, "workload.sequence", "must be at most 8192"),
        ({"batch_size": 10_000}, "workload.batch_size", "must be at most 8192, as there are samples"),
        ({"dataset": "digits"}, "workload.dataset", "must be"),
        ({"hiden": 3}, "workload.hiden", "did you mean 'hidden'"),
    ],
)
def test_what_cannot_be(values: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        lockstep.load("quickstart", [f"workload={json.dumps(SMALL | values)}"])
    assert caught.value.key == key
    assert said in caught.value.problem
