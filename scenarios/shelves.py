"""What the package ships, by name; none of it is read here, and nothing is loaded for it."""

from pathlib import Path

SHELVES = ("clusters", "workloads", "profiles")


def shelf(name: str) -> dict[str, Path]:
    """Return what the package has of one of SHELVES: names, and files."""
    return {file.stem: file for file in sorted((Path(__file__).parent / name).glob("*.yaml"))}


def profiles() -> dict[str, Path]:
    """Return the profiles that come with the package: names, and files."""
    return shelf("profiles")


def shipped() -> dict[str, Path]:
    """Return the scenarios that come with the package: names such as `strategies/downpour`, and files.

    Those that stand by themselves come first.
    """
    folder = Path(__file__).parent
    found = sorted(folder.rglob("*.yaml"), key=lambda file: (file.parent != folder, file))
    files = {file.relative_to(folder): file for file in found}
    return {
        file.with_suffix("").as_posix(): path for file, path in files.items() if file.parts[0] not in SHELVES
    }
