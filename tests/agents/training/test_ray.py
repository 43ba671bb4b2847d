"""Groups of trainings on a Ray cluster, one of whose machines is killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'hitmac[ray]'")

from ray.cluster_utils import Cluster

SMALL = ["--num-envs", 8, "--rollout-steps", 4, "--batch-size", 16, "--weight-dim", 8, "--save-every", 0]
SMALL += ["--episodes", 2, "--episode-steps", 20, "--curve-points", 0]


def command(*arguments):
    return [sys.executable, "-m", "hitmac.train", *map(str, arguments)]


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of a machine that trains nothing and two with one CPU each, all of them on this machine."""
    for name, value in {"period_ms": 500, "failure_threshold": 3, "initial_delay_ms": 0}.items():
        monkeypatch.setenv(f"RAY_health_check_{name}", str(value))  # a machine that is gone is noticed soon
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH")))))
    memory = {"object_store_memory": 100 * 2**20}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **memory})
    found.workers = [found.add_node(num_cpus=1, **memory) for _ in range(2)]
    found.wait_for_nodes()
    yield found
    found.shutdown()


@pytest.mark.slow
def test_a_training_whose_machine_is_killed_goes_on_elsewhere(cluster, tmp_path):
    several = ["--run-dir", tmp_path / "all", "--seeds", "0..1", "--total-steps", 32 * 80]
    with open(tmp_path / "log", "wb") as log:
        started = command(*several, "--ray", cluster.address, *SMALL)
        group = subprocess.Popen(started, stdout=log, stderr=subprocess.STDOUT)
    states = [tmp_path / "all" / f"seed-{seed}" / "checkpoint" / "training.safetensors" for seed in range(2)]
    end = time.monotonic() + 900
    while not all(state.is_file() for state in states) and time.monotonic() < end and group.poll() is None:
        time.sleep(0.1)
    assert group.poll() is None, (tmp_path / "log").read_text()
    cluster.remove_node(cluster.workers[0], allow_graceful=False)
    assert group.wait(timeout=1800) == 0, (tmp_path / "log").read_text()
    logs = [(state.parents[1] / "training.log").read_text() for state in states]
    assert sorted(text.count("compiling") for text in logs) == [1, 2], "one was killed and began again"
    found = json.loads((tmp_path / "all" / "evaluation.json").read_text())["agents"]["trained"]
    assert found["trainings"] == 2
    alone = ["--run-dir", tmp_path / "alone", "--seed", 0, "--total-steps", 32 * 80]
    subprocess.run(command(*alone, *SMALL), check=True)
    weights = [Path(tmp_path, run, "checkpoint", "policy.safetensors").read_bytes() for run in ("all/seed-0", "alone")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_no_cluster_is_one_line_and_leaves_nothing(tmp_path):
    absent = subprocess.run(
        command("--run-dir", tmp_path / "x", "--seeds", 2, "--ray", "127.0.0.1:1", *SMALL),
        capture_output=True,
        text=True,
    )
    assert absent.returncode == 2
    assert "--ray is '127.0.0.1:1'; no Ray cluster answers there" in absent.stderr
    assert "Traceback" not in absent.stderr
    assert not list(tmp_path.iterdir())
