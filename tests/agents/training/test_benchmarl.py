"""BenchMARL's algorithms on our environments: they train, and what they write acts as they do."""

import json
import warnings

import numpy as np
import pytest
import torch

warnings.simplefilter("ignore", DeprecationWarning)  # of the versions that BenchMARL needs
pytest.importorskip("benchmarl", reason="make baselines")
pytestmark = pytest.mark.filterwarnings("ignore")

from hitmac.agents.names import load_agent  # noqa: E402
from hitmac.agents.training.benchmarl import Options, SensorTask, train  # noqa: E402
from hitmac.envs.tasks import CoverageTask  # noqa: E402

FEW = (
    "on_policy_collected_frames_per_batch=40", "on_policy_n_minibatch_iters=1", "on_policy_minibatch_size=40",
    "off_policy_collected_frames_per_batch=40", "off_policy_n_optimizer_steps=2", "off_policy_train_batch_size=8",
)  # fmt: skip
CASES = [
    *((name, "mlp", ()) for name in ("mappo", "ippo", "maddpg", "iddpg", "masac", "isac", "qmix", "vdn", "iql")),
    *((name, "attention", ()) for name in ("mappo", "ippo", "maddpg", "isac", "qmix")),
    ("mappo", "mlp", ("min_sensors=1", "zoom=[30, 120]")),  # with masks
    ("qmix", "attention", ("min_sensors=1", "zoom=[30, 120]")),
]


@pytest.mark.parametrize(("algorithm", "model", "settings"), CASES)
def test_an_algorithm_trains_and_the_written_policy_acts_as_it_does(algorithm, model, settings, tmp_path):
    options = Options(algorithm, set=settings, model=model, total_steps=80, option=FEW, run_dir=tmp_path)
    experiment = train(options)
    assert [point["steps"] for point in json.loads((tmp_path / "curve.json").read_text())["exploring"]] == [40, 80]
    scenario = SensorTask(settings=settings).scenario
    agent = load_agent(f"benchmarl:{tmp_path}", scenario)
    task = CoverageTask(scenario, 10, list(range(10)))
    env = SensorTask(settings=settings).get_env_fun(10, "ddpg" in algorithm, 0, "cpu")()
    env.set_seed(0)
    from torchrl.envs.utils import ExplorationType, set_exploration_type

    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        chosen = experiment.algorithm.get_policy_for_loss("sensors")(env.reset())["sensors", "action"].numpy()
    from hitmac.envs.tasks.base import decisions_of

    meant = decisions_of(chosen, len(scenario.decisions)) * task.observe()["mask"].any(-1, keepdims=True)
    actions, _ = agent.policy.predict(task.observe())
    assert np.array_equal(actions, meant.swapaxes(1, 2).reshape(10, -1))
    with pytest.raises(FileExistsError, match="already holds a policy; give another run_dir"):
        train(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options("mapo"), "algorithm is 'mapo' .did you mean mappo"),
        (Options(model="gnn"), "model is 'gnn'; it must be one of mlp, attention"),
        (Options(option=("gama=0.9",)), "unknown option 'gama' .did you mean gamma"),
        (Options(option=("lr",)), "'lr' must be NAME=VALUE"),
    ],
)
def test_an_unknown_name_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train(options)
