"""Trained policies that come with the package, by name: ``load_agent("pretrained:flat")``.

Each is a checkpoint, safetensors and JSON, with a card of its training and its figures. ``hitmac pretrained NAME RUN``
makes one of a run.
"""

from pathlib import Path

from hitmac.envs.validation import did_you_mean

PREFIX = "pretrained:"  # beginning of the names of pretrained agents
FOLDER = Path(__file__).parent  # each policy is in a folder of its name


def pretrained() -> list[str]:
    """Return the names of the pretrained policies."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def pretrained_folder(name: str) -> Path:
    """Return the folder of the checkpoint of a name; raise ValueError, which lists the known, for another name."""
    if name not in (known := pretrained()):
        hint = did_you_mean(name, known)
        raise ValueError(f"unknown pretrained policy {name!r}{hint}: known are {', '.join(known)}")
    return FOLDER / name
