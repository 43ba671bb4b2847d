"""The disk cache of the kernels."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
sys.path.insert(0, sys.argv[1])
from kernels_of_mine import double
import numpy as np
out = np.arange(3.0)
double(out, None)
assert out.tolist() == [0.0, 2.0, 4.0]
print(sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values()))
"""
KERNEL = """
from parts_of_mine import twice
from hitmac.envs.kernels.threads import kernel

@kernel
def double(numbers, share):
    for k in range(numbers.shape[0]):
        numbers[k] = twice(numbers[k])
"""
PARTS = """
from hitmac.envs.kernels.threads import compiled

@compiled
def twice(number):
    return 2.0 * number
"""


@pytest.fixture
def use(tmp_path):
    """Calls a kernel in a process of its own; returns the hits and misses of the cache."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "kernels_of_mine.py").write_text(KERNEL)
    (package / "parts_of_mine.py").write_text(PARTS)

    def start(**changes):
        environment = {**os.environ, "HOME": str(tmp_path / "home"), **changes}
        environment.pop("NUMBA_CACHE_DIR", None)
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(package)], text=True, env=environment, stdout=subprocess.PIPE
        )

    def ended(process):
        printed, _ = process.communicate()
        assert process.returncode == 0
        return tuple(map(int, printed.split()))

    def call(**changes):
        return ended(start(**changes))

    call.package, call.start, call.ended = package, start, ended
    return call


def test_the_folder_in_which_a_program_runs_does_not_matter(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.py").write_text("other = 1\n")
    script = "from hitmac.envs.kernels.observe import observe\nprint(observe._cache._cache_file._index_path)\n"
    places = [
        subprocess.run(
            [sys.executable, "-c", script], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=True,
        ).stdout
        for folder in (tmp_path, tmp_path / "empty")
    ]  # fmt: skip
    assert places[0] == places[1]


@pytest.mark.slow
def test_a_second_process_compiles_nothing(use):
    assert use() == (0, 1)
    assert use() == (1, 0)


def test_without_a_place_to_write_to_it_works(use):
    """Root may write anywhere, so a file stands where the folder would be."""
    (use.package / "__pycache__").write_text("")
    assert use(HOME="/dev/null", XDG_CACHE_HOME="/dev/null") == (0, 1)


def test_processes_that_start_together_compile_a_kernel_once(use):
    together = [use.ended(process) for process in [use.start() for _ in range(3)]]
    assert sorted(together) == [(0, 1), (1, 0), (1, 0)]


@pytest.mark.slow
def test_an_edit_to_a_called_function_voids_the_kernel(use):
    use()
    (use.package / "parts_of_mine.py").write_text(PARTS.replace("2.0", "(1.0 + 1.0)"))
    assert use() == (0, 1)
