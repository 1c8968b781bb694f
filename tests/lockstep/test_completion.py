"""What shells complete."""

import os
import subprocess

import pytest

from tests.support.command_line import COMMAND


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("lockstep si", ["simulate"]),
        ("lockstep simulate --time", ["--timeline", "--timeout"]),
        ("lockstep simulate strategies/ss", ["strategies/ssp", "strategies/ssp-blocking"]),
        ("lockstep validate tensor/digits-h", ["tensor/digits-halo"]),
    ],
)
def test_words_are_completed(words: str, found: list[str]) -> None:
    asked = {"_LOCKSTEP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    said = subprocess.run(COMMAND, env=os.environ | asked, capture_output=True, text=True, check=True)
    assert sorted(said.stdout.split()) == found
