"""Names of the programs of this package."""

from __future__ import annotations

import sys


def program_name(otherwise: str) -> str:
    """Return how the running program was called, in messages: ``hitmac train``, or `otherwise`, as ``train.py``."""
    return sys.argv[0] if sys.argv and sys.argv[0].startswith("hitmac ") else otherwise
