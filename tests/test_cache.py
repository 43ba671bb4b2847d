"""The disk cache of the kernels: a file that cannot be used is not used."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hitmac.envs.kernels import threads as cache

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import sys, time, warnings
warnings.simplefilter("always")
sys.path.insert(0, sys.argv[1])
from kernels_of_mine import double
import numpy as np
out = np.arange(3.0)
double(out, None)
assert out.tolist() == [0.0, 2.0, 4.0]
print(sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values()))
"""
KERNEL = """
from hitmac.envs.kernels.threads import kernel

@kernel
def double(numbers, share):
    for k in range(numbers.shape[0]):
        numbers[k] *= 2.0
"""


@pytest.fixture
def use(tmp_path):
    """Calls a kernel in a process of its own; returns the hits and misses of the cache, and the warnings."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "kernels_of_mine.py").write_text(KERNEL)

    def start(**changes):
        environment = {**os.environ, "HOME": str(tmp_path / "home"), **changes}
        environment.pop("NUMBA_CACHE_DIR", None)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", PROGRAM, str(package)], text=True, env=environment, **pipes)

    def ended(process):
        printed, said = process.communicate()
        assert process.returncode == 0, said
        hits, misses = map(int, printed.split())
        return hits, misses, said

    def call(**changes):
        return ended(start(**changes))

    call.package, call.start, call.ended = package, start, ended
    return call


def files(package, ending):
    return sorted((package / "__pycache__").glob(f"kernels_of_mine.double*{ending}"))


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
    assert use() == (0, 1, "")
    assert use() == (1, 0, "")


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", ["empty", "cut", "altered", "random"])
def test_a_damaged_file_is_compiled_again(use, ending, damage):
    use()
    (path,) = files(use.package, ending)
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes({
        "empty": b"", "cut": data[:middle], "random": bytes(range(256)),
        "altered": data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
    }[damage])  # fmt: skip
    hits, misses, said = use()
    assert (hits, misses) == (0, 1)
    assert said.count("RuntimeWarning") == 1
    assert "cannot be used, and is compiled again" in said
    assert use() == (1, 0, "")


def test_without_a_place_to_write_to_it_works(use):
    """Root may write anywhere, so a file stands where the folder would be."""
    (use.package / "__pycache__").write_text("")
    hits, misses, said = use(HOME="/dev/null", XDG_CACHE_HOME="/dev/null")
    assert (hits, misses) == (0, 1)
    assert said.count("RuntimeWarning") == 1
    assert "cannot be cached" in said


def test_a_cache_that_can_only_be_read_is_read(use, monkeypatch):
    use()
    monkeypatch.syspath_prepend(use.package)
    monkeypatch.setattr(cache._Impl, "_locator_classes", [cache._ReadOnlyLocator])
    double = __import__("kernels_of_mine").double
    out = np.ones(2)
    double(out, None)
    assert out.tolist() == [2, 2]
    assert sum(double.stats.cache_hits.values()) == 1
    sys.modules.pop("kernels_of_mine")


def test_processes_that_start_together_compile_a_kernel_once(use):
    together = [use.ended(process) for process in [use.start() for _ in range(3)]]
    assert sorted(together) == [(0, 1, ""), (1, 0, ""), (1, 0, "")]


def test_a_process_that_was_halted_is_not_waited_for(use, monkeypatch, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    place = use.package / "__pycache__"
    place.mkdir()
    with open(place / "kernels.lock", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)  # all of it, for every kernel
        process = use.start()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=4)
        process.kill()
        process.communicate()
        program = PROGRAM.replace(
            "from kernels", "from hitmac.envs.kernels import cache\ncache._LONGEST_TURN = 0.1\nfrom kernels"
        )
        subprocess.run([sys.executable, "-c", program, str(use.package)], check=True)


@pytest.mark.slow
def test_kernels_of_other_sources_are_not_found(use):
    use()
    (use.package / "kernels_of_mine.py").write_text(KERNEL.replace("2.0", "1.0 + 1.0"))
    assert use()[:2] == (0, 1)
    assert len(files(use.package, ".nbi")) == 2
