"""What a probe's records say: how long exchanges took, and what processes were busy with, in seconds.

Between hosts, clocks do not compare: a difference is one of two readings of the same process's clock.
"""

import numpy as np
import pandas as pd

_TOGETHER_S = 3e-3  # what is further apart was not sent in one go
_MIDDLE = np.arcsinh(0.5)  # the median distance of exponential draws of mean 1 from their own median
_WAITED_S = 1e-4  # what is on its way for so much longer than the quickest found its receiver busy


def exchanges_s(records: pd.DataFrame) -> np.ndarray:
    """From the end of each gradient to the beginning of its worker's next one; all workers' together."""
    found = []
    for _, own in records[records["event"] == "gradient"].groupby("node"):
        own = own.sort_values("start")
        found.append(own["start"].to_numpy()[1:] - own["end"].to_numpy()[:-1])
    return np.concatenate(found) if found else np.empty(0)


def sending_s(records: pd.DataFrame, kind: str = "parameters") -> np.ndarray:
    """What a message of that kind costs its sender: from one to the next that it sends in the same go."""
    messages = _messages(records, kind)
    gaps = messages.sort_values("start").groupby("node")["start"].diff()
    return gaps[gaps < _TOGETHER_S].to_numpy()


def taking_in_s(records: pd.DataFrame, kind: str = "parameters") -> np.ndarray:
    """What a message of that kind costs its receiver: between ends, where the later one had to wait."""
    messages = _messages(records, kind).sort_values("end")
    way = messages["end"] - messages["start"]
    gaps = messages.groupby("peer")["end"].diff()
    waited = way - way.groupby(messages["peer"]).transform("min") > _WAITED_S
    return gaps[waited & (gaps < _TOGETHER_S)].to_numpy()


def jitter_s(records: pd.DataFrame) -> np.ndarray:
    """How far each message's way is from the middle one of its kind, as the deviation that this speaks for.

    The median is that of the ways of a shifted exponential, whatever few messages were held up for long.
    """
    messages = records[records["event"] == "message"]
    way = messages["end"] - messages["start"]
    middle = way.groupby(messages["kind"]).transform("median")
    return np.asarray(np.abs(way - middle) / _MIDDLE)


def updates_s(records: pd.DataFrame) -> np.ndarray:
    """From a push taken in to the answer: the update, at a server with one worker, which waits for it."""
    pushes = np.sort(_messages(records, "push")["end"].to_numpy())
    answers = np.sort(_messages(records, "parameters")["start"].to_numpy())[1:]  # the first is to a pull
    count = min(len(pushes), len(answers))
    return np.asarray(answers[:count] - pushes[:count])


def _messages(records: pd.DataFrame, kind: str) -> pd.DataFrame:
    return records[(records["event"] == "message") & (records["kind"] == kind)]
