from pathlib import Path

import numpy as np
import pytest

RECORDINGS = Path(__file__).parents[2] / "shared" / "reference"


@pytest.fixture
def recording():
    """Reads a recording of the released program, or skips where there is none."""

    def read(name):
        path = RECORDINGS / name
        if not path.is_file():
            pytest.skip(f"the recording {name} is not beside the project")
        return dict(np.load(path))

    return read
