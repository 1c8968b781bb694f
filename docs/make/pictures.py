"""Draws the pictures of the pages by the commands beside them: `make pictures`, `make pictures WORDS=gantt`.

Results are kept in build/pictures, so that what was interrupted goes on. What a picture was drawn by is noted
in pictures.json; tests/system/test_pictures.py says which are older than that code.
"""

import json
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import numpy as np
from drawn import DOCS, ROOT, SYSTEMS, Drawn, code_of, drawn, images
from PIL import Image

WORK = ROOT / "build" / "pictures"
NOTED = Path(__file__).with_suffix(".json")
_SOME_FAILED = 3  # of a sweep, such as what does not fit into memory: pictures say so
_LOCKSTEP = f"lockstep() {{ {sys.executable} -c 'from lockstep.cli import main; main()' \"$@\"; }}; set -e; "


def draw(picture: Drawn) -> None:
    """Run what makes the results, unless they are there and complete, and what draws; copy the picture."""
    folder = WORK / Path(picture.name).parent
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in picture.files.items():
        (folder / file).write_text(text, encoding="utf-8")
    for command in picture.makes:
        done = folder / f"{crc32(command.encode()):x}.done"
        if not done.exists():
            _run(f"{command} --yes --quiet", folder)
            done.touch()
    if "--what-if" in picture.command:
        _run(f"{picture.command} --yes --quiet", folder)
        (file,) = folder.rglob("what-if.png")
    else:
        _run(f"{picture.command} --format png --out new", folder)
        file = folder / "new" / f"{picture.kind}.png"
    with Image.open(file) as whole:
        small = _fewer(whole.convert("RGB"), 128)
        small.save(DOCS / picture.name, optimize=True)


def _fewer(picture: Image.Image, colours: int) -> Image.Image:
    """The picture in the colours of which it has most, so that no line changes its own."""
    found, which, often = np.unique(
        np.asarray(picture).reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    kept = found[np.argsort(-often, kind="stable")[:colours]].astype(int)
    nearest = ((found[:, None].astype(int) - kept) ** 2).sum(-1).argmin(1).astype(np.uint8)
    small = Image.fromarray(nearest[which].reshape(picture.height, picture.width), "P")
    small.putpalette(kept.astype(np.uint8).tobytes())
    return small


def note(names: list[str]) -> None:
    """Write down the code that has drawn these."""
    noted = json.loads(NOTED.read_text("utf-8")) if NOTED.exists() else {}
    noted |= {name: code_of(name) for name in names}
    there = {name for *_, name in images()}
    kept = {name: noted[name] for name in sorted(noted) if name in there}
    NOTED.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")


def _run(command: str, folder: Path) -> None:
    print(command, file=sys.stderr, flush=True)
    ended = subprocess.run(["bash", "-c", _LOCKSTEP + command], cwd=folder, stdout=subprocess.DEVNULL)
    if ended.returncode not in (0, _SOME_FAILED if " sweep " in command else 0):
        raise SystemExit(ended.returncode)


def main(words: list[str]) -> None:
    """Draw those with one of the words in their names, or all."""
    for picture in drawn():
        if not words or any(word in picture.name for word in words):
            draw(picture)
            note([picture.name])
            print(picture.name, flush=True)
    charts = [name for *_, name in images() if name.startswith(SYSTEMS) and "decision" not in name]
    if not words or any(word in name for word in words for name in charts):
        from systems import pictures

        pictures()
        note(charts)


if __name__ == "__main__":
    main(sys.argv[1:])
