"""A text to learn from, made by a grammar: English sentences, with relative clauses up to two deep.

It is made, not taken from a book: nothing has to be downloaded, nobody has rights in it, and it is known how
well it can be predicted. Verbs agree with their subjects across clauses, so that who looks back further does
better. Every choice is uniform among what is possible, and can be told from the text in the end: the
information in all choices is the text's entropy, and no mean loss stays below it.

    sentence -> phrase predicate ["," "but" phrase predicate] "."
    phrase -> determiner [adjective] noun ["that" (predicate | phrase transitive)]
    predicate -> intransitive [adverb] | transitive phrase
"""

import functools
from math import log
from typing import NamedTuple

import numpy as np

ALPHABET = "\n ,.abcdefghijklmnopqrstuvwxyz"
TRAIN, TEST = 131_072, 8_192  # characters

_DETERMINERS = (("one", "the", "every", "this"), ("the", "some", "many", "these"))  # singular, plural
_ADJECTIVES = ("old", "young", "small", "grey", "quiet", "clever", "hungry", "proud")
_NOUNS = ("fox", "dog", "zebra", "horse", "farmer", "king", "doctor", "sailor", "child", "girl", "judge")
_PLURALS = {"child": "children", "fox": "foxes"}
_TRANSITIVE = ("see", "follow", "help", "know", "fear", "like", "hear", "greet")
_INTRANSITIVE = ("sleep", "walk", "laugh", "sing", "wait", "dance")
_ADVERBS = ("slowly", "often", "here", "alone", "today", "well")
_DEEPEST = 2


class Text(NamedTuple):
    """The characters, and the entropy of each in nats."""

    characters: str
    entropy: float


class _Writer:
    """Draws from the grammar, and counts what the choices tell."""

    def __init__(self) -> None:
        self._rng = np.random.Generator(np.random.PCG64(0))
        self.nats = 0.0

    def one_of(self, words: tuple[str, ...]) -> str:
        self.nats += log(len(words))
        return words[int(self._rng.integers(len(words)))]

    def maybe(self) -> bool:
        return self.one_of(("yes", "no")) == "yes"

    def sentence(self) -> str:
        clauses = [self._clause()]
        if self.maybe():
            clauses.append(self._clause())
        return ", but ".join(clauses) + ".\n"

    def _clause(self) -> str:
        plural = self.maybe()
        return f"{self._phrase(plural, 0)} {self._predicate(plural, 0)}"

    def _phrase(self, plural: bool, depth: int) -> str:
        words = [self.one_of(_DETERMINERS[plural])]
        if self.maybe():
            words.append(self.one_of(_ADJECTIVES))
        noun = self.one_of(_NOUNS)
        words.append(_PLURALS.get(noun, f"{noun}s") if plural else noun)
        if depth < _DEEPEST and self.maybe():
            words += ["that", self._relative(plural, depth + 1)]
        return " ".join(words)

    def _relative(self, plural: bool, depth: int) -> str:
        if self.maybe():
            return self._predicate(plural, depth)
        other = self.maybe()
        return f"{self._phrase(other, depth)} {self._verb(_TRANSITIVE, other)}"

    def _predicate(self, plural: bool, depth: int) -> str:
        if self.maybe():
            verb = self._verb(_INTRANSITIVE, plural)
            return f"{verb} {self.one_of(_ADVERBS)}" if self.maybe() else verb
        verb = self._verb(_TRANSITIVE, plural)
        return f"{verb} {self._phrase(self.maybe(), depth)}"

    def _verb(self, verbs: tuple[str, ...], plural: bool) -> str:
        verb = self.one_of(verbs)
        return verb if plural else f"{verb}s"


@functools.cache
def text() -> Text:
    """Return the same text each time: `TRAIN` characters to learn, then `TEST` others, and one more."""
    writer, sentences, length = _Writer(), [], 0
    while length <= TRAIN + TEST:
        sentences.append(writer.sentence())
        length += len(sentences[-1])
    return Text("".join(sentences)[: TRAIN + TEST + 1], writer.nats / length)
