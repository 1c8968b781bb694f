"""What is installed: `lockstep` alone, with all its files, wherever the script that imports it stands."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support import ROOMS, ROOT


def missing() -> str:
    """What a wheel is built with, without a network, and is not here."""
    needed = {"pip": 23, "setuptools": 77}
    return ", ".join(f"{name} >= {least}" for name, least in needed.items() if not _has(name, least))


def _has(name: str, least: int) -> bool:
    try:
        return int(version(name).partition(".")[0]) >= least
    except PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}"),
]

SCRIPT = """
import json, lockstep
result = lockstep.simulate(lockstep.load("sizes-only", ["stop.steps=2"]))
print(json.dumps({"file": lockstep.__file__, "updates": result.metrics["updates"]}))
"""


def done(*command: object, **options: object) -> str:
    """What a command prints; it finds nothing by PYTHONPATH."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [str(word) for word in command]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert ended.returncode == 0, ended.stderr
    return str(ended.stdout)


def pip(*words: object) -> None:
    done(sys.executable, "-m", "pip", "--disable-pip-version-check", *words)


def environment(folder: Path) -> Path:
    """The Python of a new environment that has what Lockstep needs, and not Lockstep.

    A .pth file names the folder of these libraries; the .pth files in there do not count then, so that no
    editable install comes with them.
    """
    done(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    site = Path(done(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "needed.pth").write_text("".join(f"{path}\n" for path in sorted(paths)))
    return python


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source in a folder named `lockstep`."""
    folder = tmp_path_factory.mktemp("parent") / "lockstep"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ROOMS:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder, checkout)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel."""
    python = environment(tmp_path_factory.mktemp("installed"))
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    return python


@pytest.fixture(scope="module")
def editable(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with an editable install of the checkout."""
    python = environment(tmp_path_factory.mktemp("editable"))
    pip(
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--editable",
        checkout,
    )
    return python


def test_a_wheel_has_every_file_below_one_name(wheel: Path) -> None:
    """Scenarios, templates and tables too; links have become what they lead to."""
    source = {
        (Path("lockstep") / path.relative_to(ROOT / "lockstep" if room == "lockstep" else ROOT)).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        sizes = {name: archive.getinfo(name).file_size for name in names}
    assert names == source
    assert sizes["lockstep/workloads/models.csv"] == (ROOT / "workloads" / "models.csv").stat().st_size
    for ending in (".yaml", ".j2", ".css", ".js", ".csv"):
        assert any(name.endswith(ending) for name in names)


def test_the_command_works_where_the_wheel_is_installed(installed: Path, tmp_path: Path) -> None:
    command = installed.parent / "lockstep"
    words = ["simulate", "quickstart", "--set", "workload.learning=false", "--json", "--quiet"]
    assert json.loads(done(command, *words, cwd=tmp_path))["throughput"] > 0
    assert "quickstart" in done(command, "scenarios", cwd=tmp_path)
    code = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    rooms = [room for room in ROOMS if room != "lockstep"]
    assert done(installed, "-c", code, *rooms, cwd=tmp_path).strip() == "[]"


@pytest.mark.parametrize("how", ["installed", "editable"])
def test_folders_beside_a_script_may_be_called_like_rooms(
    how: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for room in (room for room in ROOMS if room != "lockstep"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("raise ImportError('this is not ours')\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    found = json.loads(done(request.getfixturevalue(how), "script.py", cwd=tmp_path))
    assert found["updates"] > 0


@pytest.mark.parametrize("how", ["installed", "editable"])
def test_a_script_in_the_parent_of_a_checkout_gets_the_package(
    how: str, request: pytest.FixtureRequest, checkout: Path
) -> None:
    """Not the checkout's folder, which is called `lockstep` too and comes first on the path."""
    (checkout.parent / "script.py").write_text(SCRIPT)
    python = request.getfixturevalue(how)
    found = json.loads(done(python, "script.py", cwd=checkout.parent))
    assert found["updates"] > 0
    place = checkout / "lockstep" if how == "editable" else python.parent.parent
    assert Path(found["file"]).is_relative_to(place)
