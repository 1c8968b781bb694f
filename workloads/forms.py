"""What is known of a data set without its data. Loads no torch."""

from dataclasses import dataclass

from lockstep.scenarios import ScenarioError
from lockstep.scenarios.workload import Data, Transformer
from lockstep.workloads.sentences import ALPHABET, TEST, TRAIN


@dataclass(frozen=True)
class Form:
    """The shape of a sample, and how many classes and samples there are.

    An image has (channels, height, width); a text has (characters,), and a class for each.
    """

    shape: tuple[int, ...]
    classes: int
    train: int
    test: int


FORMS = {
    "digits": Form((1, 8, 8), 10, 1437, 360),
    "mnist": Form((1, 28, 28), 10, 60_000, 10_000),
    "fashion-mnist": Form((1, 28, 28), 10, 60_000, 10_000),
    "cifar10": Form((3, 32, 32), 10, 50_000, 10_000),
    "fake": Form((3, 32, 32), 10, 512, 128),
}


def form(workload: Data | Transformer) -> Form:
    """Return the form of a shipped data set.

    Raises `ScenarioError` where the text has more characters than the vocabulary, or not one whole sample.
    """
    if isinstance(workload, Data):
        return FORMS[workload.dataset]
    sequence, known = workload.sequence, len(ALPHABET)
    vocabulary = known if workload.vocabulary is None else workload.vocabulary
    if workload.dataset is None:
        return Form((sequence,), vocabulary, 0, 0)
    if vocabulary < known:
        problem = f"must be at least {known}, as many as the text has different characters, not {vocabulary}"
        raise ScenarioError(problem, key="workload.vocabulary")
    if sequence > TEST:
        problem = f"must be at most {TEST}, as many characters as are held out, not {sequence}"
        raise ScenarioError(problem, key="workload.sequence")
    return Form((sequence,), vocabulary, TRAIN // sequence, TEST // sequence)
