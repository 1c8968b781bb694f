"""Numbers in words: a few digits, and their units."""

from math import floor, log10

NOTHING = "–"
_NOISE = 1e-6  # of a mean: an interval that is smaller is of rounding alone


def number(value: float | None, unit: str = "", nothing: str = NOTHING) -> str:
    """Four significant digits and the unit; a dash for nothing."""
    if value is None:
        return nothing
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


def count(number: int, noun: str) -> str:
    """ "1 worker", "8 workers", "8 micro-batches"."""
    if number == 1:
        return f"{number:,} {noun}"
    if noun.endswith("gy"):  # strategy
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith(('ch', 'ss')) else 's'}"


def of_replica(stages: int, parts: int, copies: int = 1) -> str:
    """What a replica of a model consists of: "4 stages × 2 parts"; "2 parts, each on 2 devices"."""
    found = [count(stages, "stage")] * (stages > 1 or parts * copies == 1)
    found += [count(parts, "part")] * (parts * copies > 1)
    return " × ".join(found) + (f", each on {count(copies, 'device')}" if copies > 1 else "")


def size(nbytes: float) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return number(nbytes, unit)
        nbytes /= 1000
    return number(nbytes, "TB")


def percent(value: float | None, sign: bool = False) -> str:
    """A fraction as a percentage; a dash for nothing."""
    if value is None:
        return NOTHING
    return f"{100 * value:+.1f}%" if sign else f"{100 * value:.1f}%"


def aim(metric: str | None, value: float | None) -> str:
    """What a run waits for: "90.0% accuracy", "loss 0.3"."""
    return f"{percent(value)} accuracy" if metric in (None, "accuracy") else f"{metric} {number(value)}"


def within(mean: float | None, half: float, unit: str = "") -> str:
    """A mean and the half of its interval, with the digits that the half leaves: "8.1 ± 0.3 s".

    One digit of the half, two if the first is a 1; three digits of the mean without an interval, or with
    one so small that it is of rounding.
    """
    if mean is None or mean != mean:
        return NOTHING
    if not half > _NOISE * abs(mean):
        text = f"{mean:,.0f}" if abs(mean) >= 1000 else f"{mean:.3g}"
        return f"{text} {unit}".rstrip()
    digits = -floor(log10(half)) + (f"{half:e}"[0] == "1")
    shown = max(digits, 0)
    return f"{round(mean, digits):,.{shown}f} ± {round(half, digits):,.{shown}f} {unit}".rstrip()
