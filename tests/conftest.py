import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:  # several processes share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("NUMBA_NUM_THREADS", "2")  # some tests compare threads

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's script runs them in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every run draws the same cases; `make fuzz` draws others.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

EXCERPTS = Path(__file__).parent / "data"
RECORDINGS = Path(__file__).parents[2] / "shared" / "reference"


@pytest.fixture
def recording():
    """Reads a whole recording of the released program, or skips where there is none."""

    def read(name):
        path = RECORDINGS / name
        if not path.is_file():
            pytest.skip(f"the whole recording {name} is not beside the project; tests/data has what may be shared")
        return dict(np.load(path))

    return read


@pytest.fixture(params=["excerpt", "whole"])
def trajectories(request, recording):
    """Reads trajectories of the released program: the excerpt in tests/data, and the whole recording if it is there."""
    return recording if request.param == "whole" else lambda name: dict(np.load(EXCERPTS / name))


@pytest.fixture
def error_of(tmp_path, monkeypatch, capsys):
    """Runs a command that is refused, in one line and before it writes a file; returns the line."""
    monkeypatch.chdir(tmp_path)

    def run(main, *arguments):
        files = sorted(tmp_path.rglob("*"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([*map(str, arguments)])
        (line,) = capsys.readouterr().err.splitlines()
        assert (end.value.code, sorted(tmp_path.rglob("*"))) == (2, files)
        return line

    return run
