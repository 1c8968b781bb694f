"""What earlier versions saved, where names were all that told a link: the fields are read off those once.

Here alone is a name taken apart, and only on the way in from a file.
"""

import re
from typing import Any

import pandas as pd

from lockstep.strategies.resource import FIELDS

Fields = dict[str, Any]
_OF_ONE = re.compile(r"(\w+) (\d+)(?:'s (.+))?")
_OF_ALL = re.compile(r"the (serving )?(\w+)s' (.+)")
_SITES = re.compile(r"the link from site (\d+) to site (\d+)")
_SPINE = re.compile(r"link (up to|down from) spine(?:s| (\d+))")
_NOUNS = {  # kind and direction
    "link": ("card", "both"),
    "up-link": ("card", "up"),
    "down-link": ("card", "down"),
    "up-link and down-link": ("card", "up"),
    "inner link": ("inner", "both"),
    "processor": ("processor", ""),
}


def with_identities(table: pd.DataFrame) -> pd.DataFrame:
    """A utilisation with its columns of `ResourceId`, read off the names if it has none.

    Raises ValueError for a name that no version has given.
    """
    if set(FIELDS) <= set(table.columns):
        return table
    names = table["resource"].astype("category")
    known = [_fields(str(name)) for name in names.cat.categories]
    codes = names.cat.codes.to_numpy()
    return table.assign(
        **{field: pd.Series([each[field] for each in known]).to_numpy()[codes] for field in FIELDS}
    )


def with_fields(bottleneck: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a `Bottleneck` with values for its names, if it has any."""
    who, remedy = bottleneck["who"], bottleneck["remedy"]
    if not isinstance(who, str):
        return bottleneck
    found = {**bottleneck, "who": None if who == "workers" else _fields(who)}
    found["together"] = " and " in who
    found["serving"] = who.startswith("the serving ")
    if remedy is not None and remedy["to"] is not None:
        activities = {"computing": "computing", "own updates": "updating", "waiting for others": "waiting"}
        found["remedy"] = {**remedy, "to": activities.get(remedy["to"]) or _fields(remedy["to"])}
    return found


def _fields(name: str) -> Fields:
    def fields(kind: str, owner: str, number: Any, direction: str, other: Any = -1) -> Fields:
        number = None if number is None else int(number)
        return dict(zip(FIELDS, (kind, owner, number, direction, int(other)), strict=True))

    if name == "the links between the sites":
        return fields("fabric", "site", None, "out")
    if found := _SITES.fullmatch(name):
        return fields("fabric", "site", found[1], "out", found[2])
    number: str | None = None
    if found := _OF_ONE.fullmatch(name):
        owner, number, noun = found[1], found[2], found[3] or "processor"
    elif found := _OF_ALL.fullmatch(name.replace("leaves'", "leafs'")):
        owner, noun = found[2], found[3].replace("links", "link").replace("processors", "processor")
    else:
        raise ValueError(f"{name!r} is no link or processor; simulate it again")
    if found := _SPINE.fullmatch(noun):
        return fields("fabric", owner, number, "up" if found[1] == "up to" else "down", found[2] or -1)
    kind, direction = _NOUNS.get(noun.partition(" (")[0], (None, ""))
    if kind is None:
        raise ValueError(f"{name!r} is no link or processor; simulate it again")
    return fields("fabric" if owner == "rack" else kind, owner, number, direction)
