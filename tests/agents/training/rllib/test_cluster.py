"""Groups of trainings on a Ray cluster, one of whose machines is killed."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'hitmac[ray]'")

import psutil  # comes with Ray
from ray.cluster_utils import Cluster

from tests.agents.training.brief import OWN_PROCESS
from tests.agents.training.runs import SMALL, differences, started, steps_of, tensors


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of a machine that trains nothing and two with one CPU each, all of them on this machine."""
    for name, value in {"period_ms": 500, "failure_threshold": 3, "initial_delay_ms": 0}.items():
        monkeypatch.setenv(f"RAY_health_check_{name}", str(value))  # a machine that is gone is noticed soon
    for name, value in OWN_PROCESS.items():
        monkeypatch.setenv(name, value)
    memory = {"object_store_memory": 100 * 2**20}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **memory})
    found.workers = [found.add_node(num_cpus=1, **memory) for _ in range(2)]
    found.wait_for_nodes()
    yield found
    found.shutdown()


def machine_of(cluster, run):
    """Return the machine of the cluster on which the training in the folder `run` runs."""
    for worker in cluster.workers:
        raylet = psutil.Process(worker.all_processes["raylet"][0].process.pid)
        for process in raylet.children(recursive=True):
            with suppress(psutil.Error):  # a process that has ended
                if f"--run-dir={run}" in process.cmdline():
                    return worker
    raise LookupError(f"no machine trains {run}")


@pytest.mark.slow
def test_a_training_whose_machine_is_killed_continues_elsewhere(cluster, here, tmp_path):
    asked = ["coverage-ppo", "--total-steps", 16 * 100, *SMALL]
    several = [*asked, "--run-dir", "all", "--seeds", "0..1", "--ray", cluster.address]
    runs = [tmp_path / f"all/seed-{seed}" for seed in range(2)]
    group = started(tmp_path, several, runs, enough=any)
    killed = [(run / "checkpoint/training.safetensors").is_file() for run in runs].index(True)
    cluster.remove_node(machine_of(cluster, runs[killed]), allow_graceful=False)
    assert group.wait(timeout=1800) == 0, (tmp_path / "log").read_text()
    began = [(run / "training.log").read_text().count("compiling: ") for run in runs]
    assert began == [1 + (seed == killed) for seed in range(2)], "one was killed and began again"
    assert json.loads(Path("all/evaluation.json").read_text())["agents"]["trained"]["trainings"] == 2
    here(*asked, "--run-dir", "alone", "--seed", 0)
    assert differences(tensors("all/seed-0"), tensors("alone")) == []


@pytest.mark.slow
def test_a_signal_stops_a_group_which_is_continued(here, tmp_path):
    asked = ["coverage-ppo", "--run-dir", "all", "--seeds", 2, "--ray", "local", "--total-steps", 10**7, *SMALL]
    group = started(tmp_path, asked, [f"all/seed-{seed}" for seed in range(2)])
    group.terminate()
    assert group.wait(300) == 0, (tmp_path / "log").read_text()
    assert "stopped; continue with: " in (tmp_path / "log").read_text()
    assert not (tmp_path / "all/evaluation.json").exists()
    steps = [steps_of(f"all/seed-{seed}") + 16 for seed in range(2)]
    here("coverage-ppo", "--run-dir", "all", "--resume", "--total-steps", max(steps), "--processes", 1, evaluated=True)
    assert all(steps_of(f"all/seed-{seed}") == max(steps) for seed in range(2))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"])
def test_a_group_without_a_cluster_leaves_nothing(address, refused):
    assert f"--ray is '{address}'" in refused("--run-dir", "x", "--seeds", 2, "--ray", address, *SMALL)


def test_a_cluster_that_a_busy_machine_does_not_start_is_refused(refused, monkeypatch):
    def init(*address, **options):
        raise Exception("The current node timed out during startup.\nSee the logs.")

    monkeypatch.setattr("ray.init", init)
    line = refused("--run-dir", "x", "--seeds", 2, "--ray", "local", *SMALL)
    assert line.endswith("--ray is 'local'; no Ray cluster answers: The current node timed out during startup.")
