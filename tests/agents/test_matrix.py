"""Every job trains and is used on every preset, with every executor and critic, and with any pair of options."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from hitmac.agents.baselines.levels import COORDINATORS, EXECUTORS
from hitmac.agents.evaluate import evaluate, evaluate_executors
from hitmac.agents.learned.checkpoint import save_policy
from hitmac.agents.learned.policy import CRITICS
from hitmac.agents.registry import SCRIPTED, load_agent, load_executor, load_run
from hitmac.agents.training.config import JOBS, ExecutorOptions, Options, check, check_on
from hitmac.agents.training.train import build
from hitmac.envs import FEATURES, load_scenario, presets
from hitmac.perception.encoder import ATTEND_OVER, ENCODERS
from hitmac.perception.functional import FIXED_POOLINGS

TINY = {"num_envs": 2, "rollout_steps": 2, "batch_size": 2, "weight_dim": 4, "episode_steps": 3}
# The presets, made small where the numbers of sensors and targets show nothing new.
COURTS = ("volleyball-6", "volleyball-4", "basketball-6", "football-6", "football-4")  # basketball-4 stands for all
# A city differs only in the simulator: test_city.
SCENES = {name: load_scenario(name) for name in presets() if name not in (*COURTS, "city")}
SCENES["large"] = SCENES["large"].replace(num_sensors=5, num_targets=6)
SCENES["hit-mac-2x1"] = load_scenario("hit-mac-2x1")
SCENES["hit-mac-1x3"] = load_scenario("hit-mac-1x3")


def train(options: Options, scenario, folder):
    """One update of a job, kept as a checkpoint."""
    check(options)
    check_on(options, scenario)
    model, venv, config = build(options, scenario)
    model.learn(options.rollout_steps * venv.num_envs)
    assert all(bool(parameter.isfinite().all()) for parameter in model.policy.parameters())
    save_policy(folder, model.policy, config)


def use(job, folder, scenario):
    """The checkpoint plays on the scene."""
    if job == "executor":
        level = load_executor(folder, scenario)
        results = evaluate_executors({"trained": level}, scenario, episodes=2, max_episode_steps=4, progress=False)
        assert 0 <= results["agents"]["trained"]["rotation"]["mean"] <= 1
        agent = load_agent("assign-in-range", scenario, executor=folder)
    else:
        agent = load_run(folder, scenario)
    results = evaluate([agent], scenario, episodes=2, max_episode_steps=4, progress=False)["agents"]
    assert 0 <= results[agent.name]["coverage"]["mean"] <= 1
    return results[agent.name]["per_episode"]


@pytest.fixture(scope="module")
def executors(tmp_path_factory):
    """An executor for every way of deciding: for lenses that zoom, and for those that do not."""
    folders = {}
    for name in ("hit-mac", "obstacles"):
        folders[name] = tmp_path_factory.mktemp(name)
        train(ExecutorOptions(**TINY), load_scenario(name), folders[name])
    return folders | {"scripted": "scripted"}


@pytest.mark.parametrize("critic", [None, *CRITICS])
@pytest.mark.parametrize("preset", SCENES)
@pytest.mark.parametrize("job", ["coverage", "executor"])
def test_a_job_on_every_preset_with_every_critic(job, preset, critic, tmp_path):
    train(JOBS[job](**TINY, critic=critic), SCENES[preset], tmp_path)
    use(job, tmp_path, SCENES[preset])


@pytest.mark.parametrize("executor", ["scripted", "hit-mac", "obstacles"])
@pytest.mark.parametrize("preset", SCENES)
def test_a_coordinator_on_every_preset_with_every_executor(preset, executor, executors, tmp_path):
    """Those trained with and without zoom turn the sensors of scenes with and without it."""
    options = JOBS["coordinator"](**TINY, executor=str(executors[executor]))
    train(options, SCENES[preset], tmp_path)
    use("coordinator", tmp_path, SCENES[preset])


@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("preset", ["hit-mac", "obstacles", "random"])
@pytest.mark.parametrize("difference_rewards", [False, True])
def test_a_coordinator_with_every_critic(preset, critic, difference_rewards, tmp_path):
    train(JOBS["coordinator"](**TINY, critic=critic, difference_rewards=difference_rewards), SCENES[preset], tmp_path)
    use("coordinator", tmp_path, SCENES[preset])


@pytest.mark.parametrize("preset", SCENES)
def test_every_agent_without_learning_on_every_preset(preset, executors):
    scenario = SCENES[preset]
    names = [*SCRIPTED, *(f"{first}:{last}" for first in COORDINATORS for last in EXECUTORS)]
    agents = [load_agent(name, scenario) for name in names]
    agents += [load_agent("assign-all", scenario, executor=folder)._replace(name=f"assign-all:{name}")
               for name, folder in executors.items() if name != "scripted"]  # fmt: skip
    results = evaluate(agents, scenario, episodes=2, max_episode_steps=3, progress=False)["agents"]
    assert set(results) == {agent.name for agent in agents}
    levels = {name: load_executor(name, scenario) for name in EXECUTORS}
    levels |= {name: load_executor(path, scenario) for name, path in executors.items() if name != "scripted"}
    of_executors = evaluate_executors(levels, scenario, episodes=2, max_episode_steps=3, progress=False)["agents"]
    assert of_executors["still"]["rotation"]["mean"] == 0
    assert all(-1.1 <= result["reward"]["mean"] <= 1 for result in of_executors.values())


def test_all_left_is_all_left_where_lenses_zoom():
    """Turns and zooms of several sensors are not mixed up: all turn left, and no lens changes."""

    class Left:
        features = ("bearing",)

        def __init__(self, zoom):
            self.zoom = zoom

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            rows = len(observation["mask"])
            return (np.tile([1, self.zoom], (rows, 1)) if self.zoom is not None else np.ones(rows, int)), None

    from hitmac.agents.hierarchy import LevelPolicy

    scenario = load_scenario("obstacles")
    levels = {f"zoom {zoom}": LevelPolicy(Left(zoom), ("bearing",), "masked") for zoom in (None, 0, 1, 2)}
    results = evaluate_executors(levels, scenario, episodes=3, max_episode_steps=5, progress=False)["agents"]
    assert {name: result["rotation"]["mean"] for name, result in results.items()} == dict.fromkeys(levels, 1.0)
    from hitmac.envs.tasks import CoordinatorTask

    for zoom, change in ((None, 0), (0, 0), (1, -50), (2, 30)):
        task = CoordinatorTask(scenario, 3, 0, executor=Left(zoom), executor_features=("bearing",))
        task.step(np.ones((3, 32), int))
        assert task.info()["turned"].tolist() == [4.0] * 3
        assert (task.simulator.state.field_of_view == 90 + change).all()
        task.step(np.zeros((3, 32), int))  # nothing is assigned: the lenses stay as they are
        assert (task.simulator.state.field_of_view == 90 + change).all()


# --- options in pairs ---

VALUES = {
    "algorithm": ("ppo", "a2c"),
    "encoder": tuple(ENCODERS),
    "attend_over": tuple(ATTEND_OVER),
    "pooling": tuple(FIXED_POOLINGS),
    "embed_layers": (1, 2),
    "num_blocks": (1, 2),
    "num_frequencies": (0, 2),
    "num_heads": (1, 2),
    "scaled": (False, True),
    "critic": (None, *CRITICS),
    "features": (("hit-mac",), ("frame",), ("motion",), tuple(FEATURES), ("target_id",)),
    "num_envs": (1, 3),
    "rollout_steps": (2, 5),
    "batch_size": (2, 64),
    "epochs": (1, 2),
    "weight_dim": (2, 8),
    "gamma": (0.0, 1.0),
    "gae_lambda": (0.0, 1.0),
    "episode_steps": (1, 7),
    "entropy": (0.0, 0.01),
    "scene": ("hit-mac-3x2", "obstacles", "random", "hit-mac-1x1"),
}
IMITATION = {
    "algorithm": ("imitation", "ppo", "a2c"),
    "teacher": ("planner", "planner-fast"),
    "planner_turn_cost": (0.0, 1.0),
    "temperature": (0.1, 1.0),
}
COVERAGE = IMITATION | {"per_sensor": (False, True), "turn_cost": (0.0, 0.5)}
OWN = {
    "coverage": COVERAGE,
    "coverage-ppo": COVERAGE | {"algorithm": ("ppo", "a2c"), "teacher": ("planner",)},
    "executor": IMITATION
    | {
        "padding": ("masked", "attended", "unfiltered"),
        "row_id": (True, False),
        "goals_every": (1, 3),
        "goal_share": (0.0, 0.5, 1.0),
        "centring": (0.0, 1.0),
        "turn_cost": (0.0, 0.5),
    },
    "coordinator": IMITATION
    | {
        "difference_rewards": (True, False),
        "idle": ("random", "hold"),
        "decision": (1, 4),
        "executor": ("scripted", "hit-mac", "obstacles"),
    },
}


def pairwise(values, seed=0):
    """Rows with one value for every option, so that every pair of values of two options stands in one of them."""
    names = list(values)
    open_pairs = {
        (one, a, other, b)
        for one, other in itertools.combinations(names, 2)
        for a in range(len(values[one]))
        for b in range(len(values[other]))
    }
    rng = np.random.default_rng(seed)
    while open_pairs:
        one, a, other, b = min(open_pairs)
        best, gain = {}, -1
        for _ in range(30):
            row = {name: int(rng.integers(len(values[name]))) for name in names} | {one: a, other: b}
            covered = sum((x, row[x], y, row[y]) in open_pairs for x, y in itertools.combinations(names, 2))
            if covered > gain:
                best, gain = row, covered
        open_pairs -= {(x, best[x], y, best[y]) for x, y in itertools.combinations(names, 2)}
        yield {name: values[name][place] for name, place in best.items()}


@pytest.mark.parametrize("job", JOBS)
def test_every_pair_of_options_that_is_allowed_trains(job, executors, tmp_path):
    for number, row in enumerate(pairwise(VALUES | OWN[job])):
        scenario = load_scenario(row.pop("scene"))
        if "executor" in row:
            row["executor"] = str(executors[row["executor"]])
        torch.manual_seed(0)
        try:
            train(JOBS[job](**row), scenario, tmp_path / str(number))
            use(job, tmp_path / str(number), scenario)
        except Exception as error:
            raise AssertionError(f"{job} on {scenario.name} with {row}: {error}") from error


def test_every_option_is_in_the_matrix():
    """Whoever adds an option adds it here, or says why not: limits, places and seeds change no network and no task.

    Knowledge is that of the scenes. Policies to start from, memories, tracks and groups have tests of their own:
    test_start, test_recurrent_policy, test_recordings, test_variations; so have devices and lists of the nearest:
    test_device, test_nearest_agents; so have the options of the engine: test_rllib_engine.
    """
    apart = {"scenario", "minutes", "total_steps", "seed", "seeds", "run_dir", "resume", "save_every", "episodes"}
    apart |= {"learning_rate", "final_entropy", "max_grad_norm", "curve_points"}
    apart |= {"knowledge", "start", "memory", "tracks", "set", "processes", "ray", "device"}
    apart |= {"nearest", "radius", "neighbours"}
    apart |= {"engine", "num_env_runners", "num_learners", "address"}
    for job, options in JOBS.items():
        names = {field.name for field in dataclasses.fields(options)}
        assert names - apart == (set(VALUES) | set(OWN[job])) - {"scene"}
