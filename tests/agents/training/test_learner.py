"""Learners: their clock, environments, teachers, rates, numbers that are not finite, and weights to start from."""

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger

from hitmac.agents.learned.checkpoint import load_policy, tensors_of
from hitmac.agents.planning.levels import AssignPlanned, PlannerExecutor
from hitmac.agents.planning.planner import PlannerAgent
from hitmac.agents.pretrained import pretrained_folder
from hitmac.agents.tracking.features import BELIEFS
from hitmac.agents.training import learner
from hitmac.agents.training.config import JOBS, CoverageRewardOptions, ExecutorOptions, check, check_on, with_defaults
from hitmac.agents.training.resume import Progress
from hitmac.envs import load_scenario
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv
from tests.agents.training.runs import SMALL, steps_of

HIT_MAC = load_scenario("hit-mac")
TINY = {"num_envs": 2, "rollout_steps": 2, "batch_size": 4, "weight_dim": 4}


def tiny(job, algorithm=None, **options):
    """Return the options of a small training."""
    return dataclasses.replace(with_defaults(JOBS[job], algorithm or JOBS[job].algorithm), **TINY | options)


def clock_at(done, options):
    """Return a clock that stands at a share of the training."""
    return SimpleNamespace(fraction=done, rates=options.rates(done), is_overdue=False, add_point=lambda **means: None)


# --- the clock ---


def test_scenes_without_targets_do_not_count_in_the_means_of_a_rollout():
    scenario, found = load_scenario("hit-mac").replace(leave_rate=0.6, return_rate=0.1), []
    venv, callback = DirectionalSensorVecEnv("Coverage", 8, scenario, seed=0), learner.RolloutCallback()
    callback.model = SimpleNamespace(get_env=lambda: venv, logger=Logger(None, []))
    venv.reset()
    callback.locals["new_obs"] = {}
    callback._on_rollout_start()
    for _ in range(10):
        callback.locals["rewards"] = venv.step(np.zeros((8, 4), np.int64))[1]
        callback._on_step()
        found.append(venv.task.simulator.observed_coverage)
    callback._on_rollout_end()
    assert np.isnan(found).any()
    assert callback.means["coverage"] == pytest.approx(np.nanmean(found))


def test_means_over_a_rollout_are_of_whole_decisions_and_of_the_ends_of_episodes():
    venv, callback = DirectionalSensorVecEnv("Coordinator", 4, max_episode_steps=2), learner.RolloutCallback()
    venv.seed(0)
    callback.model = SimpleNamespace(get_env=lambda: venv, logger=Logger(None, []))
    callback.locals = {"new_obs": venv.reset()}
    twin = gymnasium.make_vec("dsn/Coordinator-v0", num_envs=4)
    twin.reset(seed=0)
    callback._on_rollout_start()
    found = []
    for _ in range(2):
        callback.locals["rewards"] = venv.step(np.ones((4, 20), np.int8))[1]
        callback._on_step()
        info = twin.step(np.ones((4, 20), np.int8))[4]
        found.append((info["coverage"].mean(), info["turned"].mean() / 4))
    callback._on_rollout_end()
    assert found[1][1] > 0.0
    assert (callback.means["coverage"], callback.means["rotation"]) == pytest.approx(np.mean(found, 0))


def test_the_clock_and_its_line(monkeypatch):
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=str, flush=int))  # no file
    engine = SimpleNamespace(progress=Progress(30.0), steps=2_500_000)
    clock = learner.TrainingClock(CoverageRewardOptions(minutes=1.0, total_steps=4_000_000), engine)
    for paused, seconds in ((True, 30), (False, 35)):
        clock._since -= 5
        clock.tick(paused=paused)
        assert seconds <= engine.progress.seconds < seconds + 3
    engine.progress.seconds = 30.0
    assert clock.fraction == 2.5 / 4
    assert clock.fraction_at(1, 45.0) == 0.75
    assert clock.fraction_at(9_000_000, 0.0) == 1.0
    clock.add_point(0.5, 0.25, 0.4)
    assert clock.bar.postfix == "2.50M steps, exploring: coverage 0.500, rotation 0.25"
    ((steps, seconds, *means),) = engine.progress.curve
    assert (steps, means) == (2_500_000, [0.5, 0.25, 0.4])
    assert 30.0 <= seconds < 35.0
    assert not clock.is_overdue
    engine.progress.seconds = 60.0 + learner.OVERDUE
    assert clock.is_overdue
    clock.close()
    assert clock.bar.n == 100


# --- numbers that are not finite ---


@pytest.mark.parametrize(
    ("job", "what", "place", "value", "says"),
    [
        (["coverage"], "reward", 0, np.nan, "the reward of scene 0 holds nan"),
        (["coverage-ppo"], "pairs", (3, 1, 2, 0), np.inf, "the observation of scene 3 holds inf at [1, 2, 0]"),
        (["coverage-ppo", "--algorithm", "a2c"], "reward", 0, 1e30, "is not finite after the update"),
        (["executor"], "reward", 0, -np.inf, "the reward of scene 0 holds -inf"),
    ],
)
def test_a_number_that_is_not_finite_ends_the_training_and_spoils_no_checkpoint(
    job, what, place, value, says, failed, monkeypatch
):
    steps, step_wait = [], DirectionalSensorVecEnv.step_wait

    def spoil(self):
        observation, rewards, *rest = step_wait(self)
        steps.append(1)
        if len(steps) == 11:  # the first warms up
            (rewards if what == "reward" else observation[what])[place] = value
        return observation, rewards, *rest

    monkeypatch.setattr(DirectionalSensorVecEnv, "step_wait", spoil)
    line = failed(*job, *SMALL, "--run-dir", "run", "--total-steps", 2000)
    assert line.startswith("train.py: error: step ")
    assert says in line
    load_policy("run")  # refuses what is not finite
    rows = 4 * (4 if job == ["executor"] else 1)
    assert steps_of("run") == 2 * 4 * rows


def test_weights_losses_and_outputs_are_checked_after_an_update():
    policy = learner.build(tiny("coverage-ppo"), HIT_MAC)[0].policy
    learner.check_outputs([policy])
    learner.check_update(policy, {"train/loss": 1.0, "train/entropy": np.nan})
    with pytest.raises(learner.TrainingError, match="train/loss, nan, is not finite after the update"):
        learner.check_update(policy, {"train/loss": np.nan})
    name, weight = list(policy.named_parameters())[-1]
    before = weight.detach().clone()
    with torch.no_grad():
        weight.view(-1)[0] = torch.nan
        with pytest.raises(learner.TrainingError, match=f"the weight {name} is not finite after the update"):
            learner.check_update(policy, {})
        weight.copy_(before)
    learner.check_update(policy, {})
    for value in (torch.inf, torch.nan):
        broken = policy.action_net.register_forward_hook(lambda *found, v=value: found[-1].fill_(v), prepend=True)
        with pytest.raises(learner.TrainingError, match=rf"the policy's TurnHead gives {value} at \[0, 0"):
            learner.check_update(policy, {})
        broken.remove()


# --- learners and environments ---


@pytest.mark.parametrize(("job", "algorithm"), [("coverage-ppo", "ppo"), ("executor", "a2c"), ("coordinator", "ppo")])
@pytest.mark.parametrize("scenario", ["hit-mac", "random"])  # also with absent sensors and targets
def test_the_entropy_of_each_kind_of_policy(job, algorithm, scenario):
    model, venv, _ = learner.build(tiny(job, algorithm), load_scenario(scenario))
    model.learn(2 * venv.num_envs)
    for scale, least, most in ((0.0, 1 - 1e-5, 1 + 1e-5), (1e3, 0.0, 0.2)):
        with torch.no_grad():
            for weight in model.policy.action_net.parameters():
                weight.normal_().mul_(scale)
        assert least <= learner.entropy_on(model.policy, model._last_obs) < most


def test_the_teacher_of_each_job():
    for job, kind in (("executor", PlannerExecutor), ("coordinator", AssignPlanned), ("coverage", PlannerAgent)):
        options = tiny(job, "imitation", teacher="planner-fast", planner_turn_cost=0.7)
        model, _, config = learner.build(options, HIT_MAC)
        teacher = model.labels.teacher
        assert isinstance(teacher, kind)
        planner = teacher if kind is PlannerAgent else teacher.planner
        assert (planner.samples, planner.turn_cost) == (4, 0.7)
        assert config.policy["credit"] == "team"


@pytest.mark.parametrize("job", ["coverage", "coverage-ppo"])
def test_the_learning_rate_and_the_entropy_bonus_follow_the_clock(job, tmp_path):
    options = tiny(job, learning_rate=1e-3, entropy=0.1, final_entropy=0.02)
    engine = learner.SB3Engine(options, HIT_MAC, tmp_path)
    assert engine.entropy is None
    engine.update(clock_at(0.25, options))
    assert (engine.entropy is None) == (options.algorithm == "imitation")
    assert engine.model.policy.optimizer.param_groups[0]["lr"] == pytest.approx(0.75e-3)
    assert engine.model.ent_coef == pytest.approx(0.08)
    engine.model.logger.close()


def test_a_training_of_one_rollout_learns(tmp_path):
    options = tiny("coverage-ppo", learning_rate=1e-3, total_steps=1)
    engine = learner.SB3Engine(options, HIT_MAC, tmp_path)
    engine.update(learner.TrainingClock(options, engine))
    assert engine.model.policy.optimizer.param_groups[0]["lr"] == pytest.approx(1e-3)
    engine.model.logger.close()


@pytest.mark.parametrize(
    ("knowledge", "practised"), [("full", "full"), ("shared", "shared"), ("neighbours", "shared"), ("own", "shared")]
)
def test_a_policy_on_beliefs_learns_with_shared_knowledge_to_play_with_less(knowledge, practised):
    options = tiny("coverage", features=BELIEFS, teacher="belief-planner-fastest")
    model, venv, config = learner.build(options, HIT_MAC.replace(knowledge=knowledge))
    found = [one.scenario.knowledge for one in (config, venv.task, model.labels.teacher)]
    assert found == [knowledge, practised, practised]


def test_an_executor_is_trained_for_what_its_options_say():
    asked = {"turn_cost": 0.2, "centring": 0.3, "goals_every": 7, "goal_share": 0.5, "padding": "attended"}
    task = learner.make_environments(ExecutorOptions(num_envs=2, **asked), load_scenario("hit-mac-executor")).task
    assert {name: getattr(task, name) for name in asked} == asked


# --- weights to start from ---


@pytest.mark.parametrize(("job", "start", "scene"), [
    ("coverage", "flat", "hit-mac"), ("coverage", "any-size", "random"), ("coverage-ppo", "flat", "hit-mac-2x3"),
    ("coverage", "beliefs", "hit-mac"), ("coordinator", "hit-mac", "hit-mac-2x3"),
    ("executor", "hit-mac/executor", "random"),
])  # fmt: skip
def test_a_training_starts_from_the_weights_features_and_network_of_another(job, start, scene):
    first, _, level = start.partition("/")
    name = str(pretrained_folder(first) / level) if level else f"pretrained:{start}"
    algorithm = "ppo" if job == "coverage-ppo" else "imitation"
    options = dataclasses.replace(with_defaults(JOBS[job], algorithm, start=name), num_envs=2, batch_size=2)
    scenario = load_scenario(scene)
    if start == "beliefs":
        scenario, options = scenario.replace(knowledge="shared"), dataclasses.replace(options, teacher="belief-planner")
    check(options)
    check_on(options, scenario)
    model, _, _ = learner.build(options, scenario)
    started, config = load_policy(pretrained_folder(first) / level)
    assert options.features == config.features
    for policy in (model.policy, getattr(model, "learned", model.policy)):
        learner.take_weights(policy, name)
        own, same = tensors_of(policy), tensors_of(started)
        if job == "coverage-ppo":  # PPO has critics of sensors
            same = {tensor: value for tensor, value in same.items() if learner.CRITIC not in tensor}
        assert all(torch.equal(own[tensor], value) for tensor, value in same.items())


def test_the_critic_of_another_kind_keeps_its_random_weights():
    options = with_defaults(JOBS["coordinator"], "ppo", start="pretrained:hit-mac")  # which has the paper's
    model, _, _ = learner.build(dataclasses.replace(options, num_envs=2, critic="value_head"), HIT_MAC)
    fresh = {name: tensor.clone() for name, tensor in tensors_of(model.policy).items()}
    learner.take_weights(model.policy, "pretrained:hit-mac")
    same = {name for name, tensor in tensors_of(model.policy).items() if torch.equal(tensor, fresh[name])}
    assert {name for name in fresh if name.startswith(learner.CRITIC)} <= same
    assert not any(name.endswith("K.weight") for name in same if not name.startswith(learner.CRITIC))


@pytest.mark.parametrize(("job", "start", "done", "alone"), [
    ("coverage-ppo", "flat", 0.05, True), ("coverage-ppo", "flat", 0.1, False), ("coverage-ppo", None, 0.05, False),
])  # fmt: skip
def test_the_critic_of_a_start_learns_alone_at_first(job, start, done, alone, tmp_path):
    options = dataclasses.replace(
        with_defaults(JOBS[job], "ppo", start=start and f"pretrained:{start}"),
        num_envs=2,
        rollout_steps=4,
        batch_size=8,
    )
    engine = learner.SB3Engine(options, HIT_MAC, tmp_path)
    before = {name: tensor.clone() for name, tensor in tensors_of(engine.model.policy).items()}
    engine.update(clock_at(done, options))
    changed = {
        name for name, tensor in tensors_of(engine.model.policy).items() if not torch.equal(tensor, before[name])
    }
    assert any(name.startswith(learner.CRITIC) for name in changed)
    assert all(name.startswith(learner.CRITIC) for name in changed) == alone
    engine.model.logger.close()


def test_a_run_starts_from_a_run_of_another_scene(here):
    small = ["--num-envs", 4, "--rollout-steps", 2, "--batch-size", 2, "--curve-points", 0, "--total-steps", 8]
    small += ["--learning-rate", "1e-9"]
    here("coverage", "--start", "pretrained:flat", *small, "--run-dir", "one")
    before, after = load_policy(pretrained_folder("flat"))[0], load_policy("one")[0]
    torch.testing.assert_close(tensors_of(after), tensors_of(before), atol=1e-6, rtol=0)
    here("coverage-ppo", "--start", "one", "--scenario", "hit-mac-2x3", *small, "--run-dir", "two")
    Path("one").rename("elsewhere")
    here("coverage-ppo", "--run-dir", "two", "--resume", "--total-steps", 16)
    assert steps_of("two") == 16
    assert json.loads(Path("two/checkpoint/config.json").read_text())["scenario"]["num_sensors"] == 2
