"""The pictures of the pages: which command beside each draws it, and the code that does."""

import ast
import hashlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PLOTS = ROOT / "analysis" / "plots"
ELSEWHERE = {  # pictures that no command of a page draws by simulation: what does
    "validation.png": "make demo measures it",
    "plots/predicted.png": "make demo measures it",
    "timeline-gantt.png": "lockstep validate --testbed, as docs/timeline.md says, measures it",
    "published.png": "make published",
    **{
        f"accuracy-{name}.png": "make accuracy predicts what benchmarks/truth has measured"
        for name in ("scatter", "errors", "staleness", "curves", "pipelines-scatter", "tensor-scatter")
    },
    "serve.png": "docs/make/serve.py, a screenshot",
}
SYSTEMS = "systems/"  # whose Gantt charts docs/make/systems.py draws
_MODULES = {  # where not the kind's own name: the module that draws it
    "throughput": "scaling", "speedup": "scaling", "time-to-target": "target", "loss-time": "curves",
    "loss-updates": "curves", "staleness-quantiles": "staleness", "critical-path": "critical",
    "heat-map": "heatmap", "what-if": "waterfall",
}  # fmt: skip
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)]+\.png)\)")
_FILE = re.compile(r"`([\w-]+\.yaml)`[^\n]*\n\n```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`(lockstep plot [^`]+)`")


class Drawn(NamedTuple):
    """A picture that commands of a page draw."""

    name: str
    """Its file, in docs/."""
    kind: str
    files: dict[str, str]
    """The scenarios that the page shows, by file."""
    makes: list[str]
    """The commands that make the results which it is of."""
    command: str
    """The one that draws it."""


def images() -> Iterator[tuple[Path, str, str]]:
    """Every picture of a page in docs/, or of the README: the page, its text above, the file in docs/."""
    for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        text = page.read_text("utf-8")
        for link in _IMAGE.finditer(text):
            yield page, text[: link.start()], str((page.parent / link[1]).resolve().relative_to(DOCS))


def drawn() -> list[Drawn]:
    """The pictures of the pages, but those of ELSEWHERE and the systems' Gantt charts.

    Raises ValueError for one that no command above it on its page draws.
    """
    found = []
    for page, above, name in images():
        if name in ELSEWHERE or (name.startswith(SYSTEMS) and "decision" not in name):
            continue
        commands = _commands(above)
        drawing = [command for command in commands if _kind(command, Path(name).stem)]
        if not drawing:
            raise ValueError(f"{page.name}: no command above {name} draws it")
        last = drawing[-1]
        words = shlex.split(last)
        wanted = {word for word in words if word.startswith("results/")}
        makes = [each for each in commands if _out(each) in wanted and " plot " not in each and each != last]
        kind = _kind(last, Path(name).stem) or ""
        found.append(Drawn(name, kind, dict(_FILE.findall(above)), list(dict.fromkeys(makes)), last))
    return found


def _commands(text: str) -> list[str]:
    """The commands of a page, as one line each."""
    found: list[tuple[int, str]] = []
    for block in _FENCED.finditer(text):
        if block[1] != "sh":
            continue
        lines = re.sub(r"\\\n\s*", " ", block[2])
        for command in re.findall(r"^lockstep (?:'[^']*'|[^'\n#])*", lines, re.MULTILINE):
            found.append((block.start(), " ".join(command.split())))
    found += [(match.start(), match[1]) for match in _INLINE.finditer(text)]
    return [command for _, command in sorted(found, key=lambda each: each[0])]


def _out(command: str) -> str:
    words = shlex.split(command)
    return words[words.index("--out") + 1] if "--out" in words else ""


def _kind(command: str, stem: str) -> str | None:
    """What of a picture's stem the command draws: its kind, or a kind and the name of its folder."""
    words = shlex.split(command)
    if "--what-if" in words:
        return "what-if" if stem == "what-if" else None
    if words[1] != "plot":
        return None
    there = [words[place + 1] for place, word in enumerate(words) if word in ("--kind", "--y")]
    named = {kind: kind for kind in there} | {f"{kind}-{Path(_out(command)).name}": kind for kind in there}
    return named.get(stem)


def code_of(name: str) -> str:
    """A digest of the code in analysis/plots that draws a picture: what it does, not what is said of it."""
    stem = "gantt" if name.startswith(SYSTEMS) and "decision" not in name else Path(name).stem
    kinds = [stem, stem.rpartition("-")[0]]
    modules = {_MODULES.get(kind, kind.replace("-", "_")) for kind in kinds if kind}
    files = {PLOTS / f"{module}.py" for module in modules} & {*PLOTS.glob("*.py")}
    files = files or {PLOTS / "against.py"}  # any other metric
    digest = hashlib.sha256()
    for file in sorted(_closure(frozenset(files))):
        digest.update(_said(file).encode())
    return digest.hexdigest()[:16]


@cache
def _closure(files: frozenset[Path]) -> frozenset[Path]:
    """Files of analysis/plots, and those there that they import."""
    found = set(files)
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lockstep.analysis.plots"):
                names = [node.module or "", *(f"{node.module}.{each.name}" for each in node.names)]
                found |= {PLOTS / f"{name.rpartition('.')[2]}.py" for name in names} & {*PLOTS.glob("*.py")}
    return frozenset(found) if found == files else _closure(frozenset(found))


@cache
def _said(file: Path) -> str:
    """The lines of a file without comments, docstrings, imports and empty lines."""
    text = file.read_text("utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if alone or isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = (
        line.split("  # ")[0].strip() for n, line in enumerate(text.splitlines(), 1) if n not in left_out
    )
    return "\n".join(line for line in lines if line and not line.startswith("#"))
