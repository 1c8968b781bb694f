"""What is known of a data set without its data. Loads no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """Image shape (channels, height, width), and how many classes and samples there are."""

    shape: tuple[int, int, int]
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
