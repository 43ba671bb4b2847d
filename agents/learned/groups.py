"""Directories of groups of trainings: of several seeds, and of variations with several seeds each."""

from __future__ import annotations

from pathlib import Path

SEED = "seed-"
"""Beginning of the folders of trainings with several seeds in the directory of all."""


def trainings_in(folder: str | Path) -> list[Path]:
    """Return the runs in the directory of several trainings, by seed; none for the directory of one run."""
    found = [path for path in Path(folder).glob(f"{SEED}*") if (path / "config.yaml").is_file()]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def variations_in(folder: str | Path) -> list[Path]:
    """Return the directories of the variations in the directory of a group, by name; none for any other."""
    if not (Path(folder) / "config.yaml").is_file():
        return []
    return sorted(path for path in Path(folder).iterdir() if path.is_dir() and trainings_in(path))


def check_single(folder: str | Path) -> None:
    """Raise ValueError if a directory holds several trainings."""
    for kind, several in (("trainings", trainings_in(folder)), ("variations", variations_in(folder))):
        if several:
            raise ValueError(f"{folder} holds {len(several)} {kind}; name one of them, such as {several[0]}")
