"""Coordinator and executor as one agent: when each decides, and what it is shown."""

import numpy as np
import pytest
import torch

from hitmac.agents import save_policy
from hitmac.agents.hierarchy import HierarchicalAgent, LevelPolicy
from hitmac.agents.learned.checkpoint import copy_executor
from hitmac.agents.names import load_agent, load_executor
from hitmac.agents.planning.levels import AssignAll, ScriptedExecutor
from hitmac.agents.policy import ReleasedPolicy
from hitmac.envs import PAPER_FEATURES, load_scenario
from hitmac.envs.tasks import CoordinatorTask, CoverageTask, ExecutorTask
from hitmac.envs.tasks.base import flatten_sensors
from hitmac.perception.released import load_released
from tests.agents.untrained import observed, untrained
from tests.perception.test_released import COORDINATOR, EXECUTOR, tensors_of

HIT_MAC = load_scenario("hit-mac")
SCRIPTED = LevelPolicy(ScriptedExecutor(), ScriptedExecutor.features)


class Recorder:
    """A coordinator that assigns target k to every sensor at its k-th call, and keeps what it was shown."""

    def __init__(self):
        self.calls = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.calls.append(observation["pairs"].copy())
        chosen = np.zeros(observation["mask"].shape, np.int8)
        chosen[..., (len(self.calls) - 1) % chosen.shape[-1]] = 1
        return chosen.reshape(len(chosen), -1), None


def test_it_decides_every_so_many_sub_steps_and_at_a_start():
    coordinator = Recorder()
    agent = HierarchicalAgent(HIT_MAC, LevelPolicy(coordinator, ("distance",)), SCRIPTED, decision=3)
    assert agent.features == ("distance", "bearing_sin", "bearing_cos", "turn")
    task = CoverageTask(HIT_MAC, 2, 0, features=agent.features)
    state, assigned = None, []
    for step in range(8):
        action, state = agent.predict(task.observe(), state, np.array([step == 0, step in (0, 4)]))
        task.step(action)
        assigned.append(state[0].any(1).argmax(-1).tolist())
    # Scene 1 begins anew at step 4, and decides then and three steps later.
    assert assigned == [[0, 0], [0, 0], [0, 0], [1, 1], [1, 2], [1, 2], [3, 2], [3, 4]]
    assert [call.shape for call in coordinator.calls] == [(2, 4, 5, 1), (2, 4, 5, 1), *[(1, 4, 5, 1)] * 3]


def test_idle_sensors_turn_at_random_or_hold():
    nothing = type("Nothing", (AssignAll,), {"act": lambda self, p, k: np.zeros((len(k), k[0].size), np.int8)})
    levels = LevelPolicy(nothing(), ("distance",)), SCRIPTED
    random, hold = (HierarchicalAgent(HIT_MAC, *levels, idle=idle) for idle in ("random", "hold"))
    shown = observed(scenes=500, features=random.features)
    drawn = random.predict(shown)[0]
    assert np.abs(np.bincount(drawn.ravel()) / drawn.size - 1 / 3).max() < 0.05
    assert not hold.predict(shown)[0].any()


def test_a_pair_turns_as_in_the_coordinators_task(tmp_path):
    """Without extra moves, after which the task's executor looks, to the bit."""
    scenario = HIT_MAC.replace(extra_move_every=0)
    for name, task, options in (("e", "Executor", {}), ("c", "Coordinator", {"idle": "hold"})):
        save_policy(tmp_path / name, *untrained("hit-mac", task, options, noise=0.3))
    copy_executor(str(tmp_path / "e"), tmp_path / "c")
    agent = load_agent(str(tmp_path / "c"), scenario)
    coordinator, executor = agent.policy.coordinator, agent.policy.executor
    decided = CoordinatorTask(
        scenario, 6, 0, features=coordinator.features, executor=executor.policy,
        executor_features=executor.features, padding=executor.padding, idle="hold",
    )  # fmt: skip
    turned, state = CoverageTask(scenario, 6, 0, features=agent.features), None
    for _ in range(4):
        decided.step(coordinator.policy.predict(decided.observe(), deterministic=True)[0])
        for _ in range(10):
            action, state = agent.policy.predict(turned.observe(), state, deterministic=True)
            turned.step(action)
        np.testing.assert_array_equal(turned.simulator.state.heading, decided.simulator.state.heading)


def test_the_released_nets_as_an_agent(tmp_path):
    torch.manual_seed(0)
    for name, shapes in (("c", COORDINATOR), ("e", EXECUTOR)):
        torch.save(tensors_of(shapes), tmp_path / f"{name}.pth")
    coordinator, executor = (load_released(tmp_path / name) for name in ("c.pth", "e.pth"))
    agent = load_agent(f"released:{tmp_path}/c.pth:{tmp_path}/e.pth", HIT_MAC)
    shown = observed(features=PAPER_FEATURES)
    _, (assigned, *_) = agent.policy.predict(shown, deterministic=True)
    chosen = coordinator(torch.as_tensor(shown["pairs"]))[0].argmax(-1).reshape(3, 4, 5).bool()
    np.testing.assert_array_equal(assigned, chosen)
    turns, _ = ReleasedPolicy(executor).predict({"pairs": shown["pairs"][:, 0]})
    assert turns.tolist() == executor(torch.as_tensor(shown["pairs"][:, 0]))[0].argmax(-1).tolist()
    load_agent(f"released:assign-all:{tmp_path}/e.pth", HIT_MAC)
    with pytest.raises(ValueError, match=r"c.pth is the released coordinator; give the released executor"):
        load_agent(f"released:assign-all:{tmp_path}/c.pth", HIT_MAC)


def test_agents_that_do_not_fit_are_refused(tmp_path):
    save_policy(tmp_path / "e", *untrained("hit-mac", "Executor"))
    save_policy(tmp_path / "f", *untrained())
    for name, says in [
        (f"{tmp_path}/e", "is an executor; name a coordinator too, as in assign-all:"),
        (f"assign-all:{tmp_path}/f", "was trained for Coverage; expected an executor"),
        (f"{tmp_path}/f:scripted", "only a coordinator takes an executor"),
        ("assign-all:nobody", "unknown executor 'nobody': known are scripted, random, still, planner, pretrained:NAME"),
        ("released:a:b:c", "unknown agent 'released:a:b:c'"),
        ("released:a.pth:b.pth", "there is no file b.pth"),
    ]:
        with pytest.raises((ValueError, FileNotFoundError), match=says):
            load_agent(name, HIT_MAC)
    level = load_executor(str(tmp_path / "e"), HIT_MAC)
    assert (level.padding, level.training_seeds) == ("masked", ((2**40, 2**40 + 9),))
    with pytest.raises(TypeError, match=r"a level of a hierarchy is .*; it must be a LevelPolicy or have predict"):
        HierarchicalAgent(HIT_MAC, None, SCRIPTED)


@pytest.mark.parametrize("padding", ["attended", "masked", "unfiltered"])
def test_an_executor_is_trained_on_the_rows_that_it_is_used_on(padding):
    """What the executor's task shows with `row_id` is what a coordinator's executor is shown of the same goals."""

    class Watched:
        features = PAPER_FEATURES

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            shown.update(observation)
            return np.zeros(len(observation["mask"]), int), None

    class Assigns:
        def predict(self, *arguments, **options):
            return task.assigned.reshape(5, -1), None

    scenario, shown, Watched.padding = load_scenario("hit-mac-4x6"), {}, padding
    options = {"features": PAPER_FEATURES, "padding": padding, "goals_every": 1, "goal_share": 0.5}
    task, released = (ExecutorTask(scenario, 5, 0, row_id=row_id, **options) for row_id in (True, False))
    for _ in range(3):
        for one in (task, released):
            one.step(np.zeros((5, 4), int))
    assert 0 < task.assigned.mean() < 0.9
    agent = HierarchicalAgent(scenario, Assigns(), Watched())  # any objects with predict
    agent.predict(task.observer.observe(task.simulator))
    expected = flatten_sensors(task.observe())
    np.testing.assert_array_equal(shown["pairs"], expected["pairs"])
    np.testing.assert_array_equal(shown["mask"], expected["mask"])
    by_target = flatten_sensors(released.observe())["pairs"]
    assert np.array_equal(by_target, shown["pairs"]) == (padding == "unfiltered")  # which leaves rows where they are
