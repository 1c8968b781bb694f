"""A run as a notebook shows it: a table of its metrics, and a picture."""

import io
from html import escape

import pandas as pd

from lockstep.analysis.result import Result
from lockstep.analysis.summary import headline


def html(result: Result) -> str:
    """The metrics in words and units, and the loss against time or, of sizes only, where time went."""
    table = result.table.to_html(border=0, justify="left")
    warnings = "".join(f"<p>warning: {escape(warning)}</p>" for warning in result.metrics["warnings"])
    return f"<p>{escape(headline(result)[1:-1])}</p>{table}{warnings}{_picture(result)}"


def _picture(result: Result) -> str:
    """A picture as an SVG element; nothing of a run that did nothing."""
    import matplotlib as mpl

    from lockstep.analysis import plots

    if result.span[1] <= result.span[0]:
        return ""
    # ids are the same in any process, and unlike those of other pictures in one page
    salt = headline(result)
    file = io.StringIO()
    learned = len(result.curve) > 0
    figure = plots.learning([result]) if learned else plots.breakdown(pd.DataFrame([result.row]))
    with mpl.rc_context({"svg.hashsalt": salt}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()[file.getvalue().index("<svg") :]
