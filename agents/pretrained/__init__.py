"""Trained policies that come with the package, by name: ``load_agent("pretrained:flat")``.

Each is a checkpoint, safetensors and JSON, with a card of its training and results. In a checkout
``hitmac pretrained NAME RUN`` creates one from a run.
"""

from pathlib import Path

from hitmac.envs.validation import did_you_mean

PREFIX = "pretrained:"
FOLDER = Path(__file__).parent  # with a folder for each policy


def pretrained() -> list[str]:
    """Return the names of the pretrained policies."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def pretrained_folder(name: str) -> Path:
    """Return the folder of a pretrained policy; raise ValueError, which lists the known names, for any other."""
    if name not in (known := pretrained()):
        hint = did_you_mean(name, known)
        raise ValueError(f"unknown pretrained policy {name!r}{hint}: known are {', '.join(known)}")
    return FOLDER / name
