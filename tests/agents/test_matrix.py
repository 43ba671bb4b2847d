"""Jobs, scenes, critics, executors and options in pairs: each trains, is saved, and acts as before it was saved."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from hitmac.agents.evaluate import evaluate, evaluate_executors
from hitmac.agents.hierarchy import LevelPolicy
from hitmac.agents.learned.checkpoint import load_policy, save_policy
from hitmac.agents.learned.policy import CRITICS
from hitmac.agents.names import load_agent, load_executor
from hitmac.agents.planning.levels import COORDINATORS, EXECUTORS
from hitmac.agents.registry import SCRIPTED
from hitmac.agents.training.config import JOBS, ExecutorOptions, check, check_on
from hitmac.agents.training.learner import build
from hitmac.envs import DEFAULT_FEATURES, FEATURES, load_scenario, presets
from hitmac.envs.observation import FEATURE_SETS
from hitmac.envs.tasks import CoordinatorTask
from hitmac.perception.encoder import ATTEND_OVER, ENCODERS
from hitmac.perception.functional import FIXED_POOLINGS
from tests.envs.scenes import BY_RATE

TINY = {"num_envs": 2, "rollout_steps": 2, "batch_size": 2, "weight_dim": 4, "episode_steps": 3}
# The presets, made small where the numbers of sensors and targets show nothing new.
COURTS = ("volleyball-6", "volleyball-4", "basketball-6", "football-6", "football-4")  # basketball-4 stands for all
# A city differs only in the simulator.
# Games of two teams have agents and a job of their own: test_resume, test_duel.
SCENES = {
    name: load_scenario(name) for name in presets() if name not in (*COURTS, "city") and not name.startswith("mate")
}
ONE_TEAM = [job for job in JOBS if job != "transport"]
SCENES["large"] = SCENES["large"].replace(num_sensors=5, num_targets=6)
SCENES |= {name: load_scenario(name) for name in ("hit-mac-2x1", "hit-mac-1x3", "hit-mac-1x1", "hit-mac-3x2")}


def train(options, scenario, folder):
    """Save the policy of one update, and check that it acts as it did before it was saved."""
    torch.manual_seed(0)
    check(options)
    check_on(options, scenario)
    model, venv, config = build(options, scenario)
    model.learn(options.rollout_steps * venv.num_envs)
    policy = getattr(model, "learned", model.policy)
    save_policy(folder, policy, config)
    saved, _ = load_policy(folder, scenario)
    actions = [one.predict(venv.observe(), deterministic=True)[0] for one in (policy, saved)]
    assert np.array_equal(*actions)


@pytest.fixture(scope="module")
def executors(tmp_path_factory):
    """An executor for every way of deciding: for lenses that zoom, and for those that do not."""
    folders = {}
    for name in ("hit-mac", "obstacles"):
        folders[name] = tmp_path_factory.mktemp(name)
        train(ExecutorOptions(**TINY), SCENES[name], folders[name])
    return folders | {"scripted": "scripted"}


def pairwise(values, seed=0):
    """Return rows with a value for every option; every pair of values of two options stands in one of them."""
    rng, rows, names = np.random.default_rng(seed), [], list(values)
    numbers = {name: range(len(values[name])) for name in names}
    pairs = itertools.combinations(names, 2)
    missing = {((one, a), (other, b)) for one, other in pairs for a in numbers[one] for b in numbers[other]}
    while missing:
        given = min(missing)
        drawn = [{name: int(rng.integers(len(numbers[name]))) for name in names} | dict(given) for _ in range(30)]
        covered = [missing.intersection(itertools.combinations(row.items(), 2)) for row in drawn]
        best = max(range(30), key=lambda number: len(covered[number]))
        missing -= covered[best]
        rows.append({name: values[name][place] for name, place in drawn[best].items()})
    return rows


def train_each(job, rows, executors, folder):
    for row in rows:
        options = {name: value for name, value in row.items() if name != "scene"}
        if "executor" in options:
            options["executor"] = str(executors[options["executor"]])
        try:
            train(JOBS[job](**options), SCENES[row["scene"]], folder)
        except Exception as error:
            raise AssertionError(f"{job} with {row}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("job", ONE_TEAM)
def test_every_pair_of_a_job_a_scene_and_a_critic(job, executors, tmp_path):
    of_all = {"job": tuple(ONE_TEAM), "scene": tuple(SCENES), "critic": (None, *CRITICS), "executor": tuple(executors)}
    rows = [TINY | row for row in pairwise(of_all) if row.pop("job") == job]
    if job != "coordinator":
        rows = [{name: value for name, value in row.items() if name != "executor"} for row in rows]
    train_each(job, rows, executors, tmp_path)


@pytest.mark.parametrize("preset", SCENES)
def test_every_agent_without_learning_plays_an_episode_as_alone(preset, executors):
    scenario = SCENES[preset]
    names = {*SCRIPTED, *(f"{one}:random" for one in COORDINATORS), *(f"assign-randomly:{one}" for one in EXECUTORS)}
    agents = [load_agent(name, scenario) for name in sorted(names)]
    agents += [load_agent("assign-all", scenario, executor=folder)._replace(name=f"assign-all:{name}")
               for name, folder in executors.items() if name != "scripted"]  # fmt: skip
    paths = {name: name for name in EXECUTORS} | executors
    levels = {name: load_executor(path, scenario) for name, path in paths.items()}
    for played, of in ((evaluate, agents), (evaluate_executors, levels)):
        both, last = (
            played(of, scenario, seed=seed, episodes=2 - seed, max_episode_steps=9, progress=False)["agents"]
            for seed in (0, 1)
        )
        assert both["still"]["rotation"]["mean"] == 0
        for name, result in last.items():
            alone = {metric: values[-1:] for metric, values in both[name]["per_episode"].items()}
            assert result["per_episode"] == alone, name


class Left:
    """Executor that turns left, with a zoom if it decides one."""

    features = ("bearing",)

    def __init__(self, zoom):
        self.action = np.array([1] if zoom is None else [1, zoom])

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.tile(self.action, (len(observation["mask"]), 1)), None


@pytest.mark.parametrize(("zoom", "change"), [(None, 0), (0, 0), (1, -50), (2, 30)])
def test_turns_and_zooms_of_several_sensors_stay_apart(zoom, change):
    """All turn left; the lenses of sensors without assignments stay as they are."""
    level = {"left": LevelPolicy(Left(zoom), ("bearing",), "masked")}
    found = evaluate_executors(level, SCENES["obstacles"], episodes=3, max_episode_steps=5, progress=False)["agents"]
    assert found["left"]["rotation"]["mean"] == 1.0
    task = CoordinatorTask(SCENES["obstacles"], 3, 0, executor=Left(zoom), executor_features=("bearing",))
    for assigned, turned in ((np.ones, 4.0), (np.zeros, None)):
        task.step(assigned((3, 32), int))
        assert turned is None or task.info()["turned"].tolist() == [turned] * 3
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
COVERAGE |= {"difference_rewards": (True, False), "normalize_values": (True, False)}
OWN = {
    "coverage": COVERAGE,
    "coverage-ppo": COVERAGE,
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


@pytest.mark.slow
@pytest.mark.parametrize("job", [job for job in ONE_TEAM if job != "coverage-ppo"])  # which has coverage's options
def test_every_pair_of_options(job, executors, tmp_path):
    train_each(job, pairwise(VALUES | OWN[job]), executors, tmp_path)


# --- rates and games ---

DUEL = load_scenario("mate-2v4-1")
PLAYED = {"by rate": BY_RATE, "duel": DUEL, "duel by rate": DUEL.replace(action="rate")}
FAST = {"teacher": "belief-planner-fastest"}


@pytest.mark.slow
@pytest.mark.parametrize("job", ["coverage", "executor", "coordinator"])
def test_every_role_decides_steps_and_rates_in_games(job, tmp_path):
    values = {
        "scene": tuple(PLAYED),
        "algorithm": ("ppo", "a2c", "imitation"),
        "features": (("beliefs",), ("last-known",)),
        "difference_rewards": (True, False),
        "per_sensor": (True, False),
        "decision": (1, 4),
        "idle": ("random", "hold"),
        "executor": ("scripted", "own"),
    }
    fields = {field.name for field in dataclasses.fields(JOBS[job])}
    values = {name: of for name, of in values.items() if name in (fields - {"opponent"}) | {"scene"}}
    for row in pairwise(values):
        scenario = PLAYED[row.pop("scene")]
        row["features"] = FEATURE_SETS.get(row["features"][0], row["features"])
        if row["features"] == ("beliefs",) and (row.get("per_sensor") or scenario is BY_RATE):
            row["features"] = DEFAULT_FEATURES
        if row.get("executor") == "own":
            row["executor"] = str(tmp_path / "own")
            train(ExecutorOptions(**TINY | {"features": row["features"]}), scenario, tmp_path / "own")
        train(JOBS[job](**TINY | FAST | row), scenario, tmp_path / "made")
        if not row.get("per_sensor"):
            name = {"executor": f"assign-in-range:{tmp_path / 'made'}"}.get(job, str(tmp_path / "made"))
            for one in (scenario, scenario.with_turns()):  # shares are played as steps, too
                executor = row.get("executor")
                found = evaluate(
                    [load_agent(name, one, executor=executor)], one, episodes=1, max_episode_steps=3, progress=False
                )
                assert len(found["agents"]) == 1
