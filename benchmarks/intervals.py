"""How far predictions move within the intervals of the profiles that they are made with.

    python benchmarks/intervals.py benchmarks/truth [PART OF A POINT'S NAME …]

Each key is set to either end of its 95% interval, all others staying; points with more than two workers whose
names have one of the parts (all, without any) are predicted as the suite does. A row a point: its error, and
how far the prediction moves.
"""

import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from lockstep.scenarios.profile import Profile
from lockstep.studies.accuracy_suite import campaign, profiles, suite
from lockstep.studies.accuracy_suite.predicting import predict


def at_an_end(document: dict[str, Any], key: str, end: int) -> Profile:
    """A profile with one key at the lower (0) or upper (1) end of its interval."""
    *sections, last = key.split(".")
    place = changed = dict(document["cluster"])
    for section in sections:
        place[section] = dict(place[section])
        place = place[section]
    place[last] = document["intervals"][key][end]
    whole = {**document, "cluster": changed, "intervals": {}, "evidence": {}}
    return Profile.model_validate(whole, context={"profile": True})


def main(folder: Path, parts: list[str]) -> None:
    source = suite.read(folder)
    documents = [YAML(typ="safe").load(file.read_text("utf-8")) for file in profiles.kept(folder)]
    keys = [key for key in documents[0]["intervals"] if all(key in each["intervals"] for each in documents)]
    moved = {(key, end): [at_an_end(each, key, end) for each in documents] for key in keys for end in (0, 1)}
    for point, row in zip(campaign.points(source.rows), source.rows, strict=True):
        if point.factors["workers"] < 3 or not any(part in point.name for part in parts or [""]):
            continue
        middle = predict(point, source.profiles, source.campaign)["throughput"]
        found = {
            where: predict(point, changed, source.campaign)["throughput"] / middle - 1
            for where, changed in moved.items()
        }
        key, end = max(found, key=lambda where: abs(found[where]))
        print(
            f"{point.name}: {middle / row['throughput'] - 1:+.1%}; {min(found.values()):+.1%} to "
            f"{max(found.values()):+.1%} (most: the {('lower', 'upper')[end]} end of {key})",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
