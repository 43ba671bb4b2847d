"""Every job learns, in seconds, to beat an agent without learning, in scenes that it was not trained on."""

import dataclasses

import pytest

from hitmac.agents.evaluate import evaluate, evaluate_executors
from hitmac.agents.learned.checkpoint import save_policy
from hitmac.agents.names import load_agent, load_executor
from hitmac.agents.registry import as_agent, as_level
from hitmac.agents.training.config import JOBS, HitMacOptions, levels, with_defaults
from hitmac.agents.training.learner import build
from hitmac.envs import load_scenario
from hitmac.envs.observation import FEATURE_SETS

UNSEEN = {"seed": 10**6, "episodes": 8, "progress": False}


def learn(options, steps):
    """Train for some steps of the environments; return the policy, the metadata of its checkpoint, and the scenario."""
    scenario = load_scenario(options.scenario).replace(knowledge=options.knowledge or "full")
    model, _, config = build(options, scenario)
    model.learn(steps)
    return getattr(model, "learned", model.policy), config, scenario


def options_of(job, algorithm, memory="none", **changes):
    options = {"weight_dim": 16, "teacher": "planner-fast"} | changes
    return dataclasses.replace(with_defaults(JOBS[job], algorithm, memory), **options)


def coverage(agents, scenario):
    found = evaluate(agents, scenario, max_episode_steps=300, **UNSEEN)["agents"]
    return {name: result["coverage"]["mean"] for name, result in found.items()}


SCENES_16 = {"num_envs": 16, "batch_size": 16, "epochs": 2}
PPO_2X2 = {"scenario": "hit-mac-2x2", "rollout_steps": 16, "epochs": 4, "batch_size": 256, "num_envs": 64}
FAST = {"learning_rate": 4e-3}
SHORT = {"num_envs": 32, "num_blocks": 1, "gamma": 0.5}
PAPER = SHORT | {"embed_layers": 1, "idle": "random", "features": FEATURE_SETS["frame"]}
SEARCH = {"scenario": "hit-mac-2x2", "knowledge": "shared", "memory": "recurrent", "teacher": "belief-planner"}
SEARCH |= {"num_envs": 32, "rollout_steps": 16, "batch_size": 128, "weight_dim": 32}


@pytest.mark.parametrize(
    ("job", "algorithm", "options", "steps", "baseline", "margin"),
    [
        ("coverage", "imitation", SCENES_16 | {"weight_dim": 32}, 16 * 96, "greedy", 0.03),
        pytest.param("coverage", "imitation", SEARCH, 32 * 16 * 8, "random", 0.1, marks=pytest.mark.slow),
        pytest.param("coverage-ppo", "ppo", PPO_2X2 | FAST, 10_240, "random", 0.15, marks=pytest.mark.slow),
        ("coordinator", "ppo", FAST | SHORT | {"batch_size": 64}, 4_000, "assign-all", 0.05),
        ("coordinator", "a2c", FAST | PAPER, 6_000, "assign-all", 0.03),
        ("coordinator", "imitation", FAST | SCENES_16, 16 * 100, "assign-all", 0.1),
    ],
)
def test_a_job_learns_to_cover_more_than(job, algorithm, options, steps, baseline, margin):
    policy, config, scenario = learn(options_of(job, algorithm, **options), steps)
    executor = load_executor("scripted", scenario) if job == "coordinator" else None
    other = load_agent(baseline, scenario, executor=None if executor is None else "scripted")
    found = coverage([as_agent(policy, config, scenario, name="trained", executor=executor), other], scenario)
    assert found["trained"] > found[other.name] + margin


def check_executor(policy, config, scenario):
    """Check that an executor sees more of its goals than one that stays or turns at random."""
    executors = {"trained": as_level(policy, config), "still": "still", "random": "random"}
    found = evaluate_executors(executors, scenario, **UNSEEN)["agents"]
    assert found["trained"]["reward"]["mean"] > max(found[name]["reward"]["mean"] for name in ("still", "random")) + 0.2


@pytest.mark.slow
def test_an_executor_learns_by_imitation():
    check_executor(*learn(options_of("executor", "imitation", num_envs=16, batch_size=64), 12_000))


GAME = {"scenario": "mate-2v4-0", "teacher": "belief-planner-fastest", "num_envs": 16, "weight_dim": 32}


@pytest.mark.slow
def test_both_levels_learn_to_play_a_game_from_a_planner(tmp_path):
    both = dataclasses.replace(with_defaults(HitMacOptions, "imitation", otherwise="game"), scenario="mate-2v4-0")
    scenario = load_scenario("mate-2v4-0").replace(action="rate")
    for level in levels(both, tmp_path):
        options = dataclasses.replace(level, **GAME, batch_size=64)
        model, _, config = build(options, scenario)
        model.learn(16 * 200 * (2 if level.job == "executor" else 1))
        save_policy(level.folder / "checkpoint", model.learned, config)
        if level.job == "executor":
            continue
        own = load_executor(tmp_path / "executor", scenario)
        trained = as_agent(model.learned, config, scenario, name="trained", executor=own)
    found = coverage([trained, "mate:greedy", "mate:random"], scenario)
    assert found["trained"] > max(found["mate:greedy"], found["mate:random"] + 0.15)


@pytest.mark.slow
def test_both_levels_of_hit_mac_cover_more_together_than_random_turns(tmp_path):
    both = dataclasses.replace(with_defaults(HitMacOptions, "ppo"), num_envs=32, weight_dim=16)
    executor, coordinator = levels(both, tmp_path)
    policy, config, scenario = learn(dataclasses.replace(executor, **FAST, batch_size=256), 30_000)
    check_executor(policy, config, scenario)
    save_policy(executor.folder, policy, config)
    policy, config, _ = learn(dataclasses.replace(coordinator, **FAST, batch_size=64), 3_000)
    trained = as_agent(policy, config, scenario, name="trained", executor=load_executor(executor.folder, scenario))
    found = coverage([trained, "random"], scenario)
    assert found["trained"] > found["random"] + 0.15
