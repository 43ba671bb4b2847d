"""Observations that policies take, and policies made of others: of one sensor, padded, and without a memory."""

from types import SimpleNamespace

import numpy as np
import pytest

from hitmac.agents import load_agent
from hitmac.agents.planning.levels import COORDINATORS, EXECUTORS, scripted_level
from hitmac.agents.policy import (
    FittedActions,
    Memoryless,
    PerSensor,
    padded_actions,
    rates_of,
    settings_of,
    shares_of,
    started,
    steps_of,
    units_of,
)
from hitmac.agents.registry import SCRIPTED
from hitmac.envs import Simulator, load_scenario
from hitmac.envs.tasks import CoverageTask
from tests.envs.scenes import BY_RATE, MOTORS

HIT_MAC = load_scenario("hit-mac")
LEVELS = {**COORDINATORS, **{f"executor {name}": kind for name, kind in EXECUTORS.items()}}


@pytest.mark.parametrize("name", [*SCRIPTED, *LEVELS])
def test_observations_of_other_shapes_are_refused(name):
    policy = load_agent(name, HIT_MAC).policy if name in SCRIPTED else scripted_level(LEVELS[name], HIT_MAC)
    shown = CoverageTask(HIT_MAC, 2, 0, features=policy.features).observe()
    if name.startswith("executor"):
        shown = {part: array.reshape(-1, *array.shape[2:]) for part, array in shown.items()}
    assert len(policy.predict(shown)[0]) == len(shown["mask"])
    if name not in COORDINATORS:
        assert len(policy.predict({part: array[:0] for part, array in shown.items()})[0]) == 0
    changes = {
        "no batch": lambda array: array[0],
        "one axis more": lambda array: array[None],
        "no targets": lambda array: array[..., :0, :] if array.dtype == np.float32 else array[..., :0],
    }
    for change, function in changes.items():
        with pytest.raises(ValueError, match=r"mask has shape .*; it must be \((scenes|rows)") as raised:
            policy.predict({part: function(array) for part, array in shown.items()})
        assert ("give mask[None] and pairs[None]" in str(raised.value)) == (change == "no batch")
    for wrong in ({}, None, np.zeros(3), {"pairs": np.zeros(3)}):
        with pytest.raises(ValueError, match=r"the observation is .*; it must be a dict of pairs and mask"):
            policy.predict(wrong)
    if name in ("nearest", "greedy", "exact", "planner"):
        with pytest.raises(ValueError, match=r"mask has shape \(2, 3, 5\); it must be \(scenes, 4 sensors"):
            policy.predict({part: array[:, :-1] for part, array in shown.items()})


def test_what_a_kernel_cannot_read_is_refused():
    agent = load_agent("planner-fast", HIT_MAC).policy
    shown = CoverageTask(HIT_MAC, 2, 0, features=agent.features).observe()
    pairs, mask, (_, state) = shown["pairs"], shown["mask"], agent.predict(shown)
    for change, message in (
        ({"pairs": pairs * np.nan}, "pairs holds nan"),
        ({"pairs": pairs.astype(str)}, "as floating-point numbers"),
        ({"pairs": pairs[:1]}, "mask is .* of shape"),
        ({"mask": mask[..., :-1]}, "mask has shape"),
        ({"mask": mask.astype(object)}, "mask is object of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            agent.predict(shown | change)
    with pytest.raises(ValueError, match="episode_start is int64 of shape"):
        agent.predict(shown, state, np.array([0, 10**9]))
    with pytest.raises(ValueError, match=r"episode_start is .* rows of the same length"):
        agent.predict(shown, state, [[True], [True, False]])


class Both:
    """Policy of one sensor that turns by its first feature, and zooms by ten more."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        turn = observation["pairs"][:, 0, 0]
        return np.stack((turn, turn + 10), -1), None


def test_turns_of_all_sensors_come_before_all_zooms():
    shown = {"pairs": np.arange(6).reshape(2, 3, 1, 1), "mask": np.ones((2, 3, 1))}
    assert PerSensor(Both()).predict(shown)[0].tolist() == [[0, 1, 2, 10, 11, 12], [3, 4, 5, 13, 14, 15]]


@pytest.mark.parametrize(
    "adapted",
    [lambda one: FittedActions(one, HIT_MAC, load_scenario("mate-2v4-0")), lambda one: Memoryless(one, ("distance",))],
)
def test_an_adapted_policy_starts_as_its_own(adapted):
    class Seeded(Both):
        def start(self, seeds):
            return (seeds,)

    assert started(adapted(Seeded()), [3, 4])[0].tolist() == [3, 4]
    assert started(adapted(Both()), [3, 4]) is None


@pytest.mark.parametrize(
    ("actions", "own", "decisions", "expected"),
    [
        ([1, 2, 0, 1], ("turn", "move"), ("turn", "zoom", "move"), [1, 2, 0, 0, 0, 1]),
        ([1, 2, 0, 1], ("turn", "zoom"), ("turn", "move"), [1, 2, 0, 0]),
        ([1, 2], ("turn",), ("turn", "move"), [1, 2, 0, 0]),
    ],
)
def test_decisions_are_completed_by_name(actions, own, decisions, expected):
    assert padded_actions(np.array([actions]), own, decisions).tolist() == [expected]


@pytest.mark.parametrize("name", ["greedy", "planner:horizon=20", "assign-all"])
def test_a_memoryless_agent_decides_as_if_only_what_is_seen_were_present(name):
    scenario = HIT_MAC.replace(knowledge="shared", failure_rate=0.05, recovery_rate=0.2)
    agent, memoryless = (load_agent(one, scenario) for one in (name, f"memoryless:{name}"))
    assert (memoryless.name, memoryless.features) == (f"memoryless:{name}", (*agent.features, "seen_now"))
    assert isinstance(memoryless.policy, Memoryless)
    task, differ = CoverageTask(scenario, 16, 0, features=memoryless.features), False
    for _ in range(20):
        shown = task.observe()
        seen = {"pairs": shown["pairs"][..., :-1], "mask": shown["mask"] & (shown["pairs"][..., -1] != 0)}
        start = started(agent.policy, np.arange(16))
        actions, _ = memoryless.policy.predict(shown, started(memoryless.policy, np.arange(16)))
        np.testing.assert_array_equal(actions, agent.policy.predict(seen, start)[0])
        differ |= (actions != agent.policy.predict(shown | {"pairs": seen["pairs"]}, start)[0]).any()
        task.step(actions)
    assert differ


def test_turns_become_rates():
    slow = MOTORS.replace(turn_angle=(1.3, 5, 90, 2.6), time_step=0.13)  # 10, 38, 692 and 20 degrees per second
    turns = np.array([[1, 2, 1, 0], [2, 0, 2, 1]])
    np.testing.assert_allclose(rates_of(turns, slow), [[10, -5 / 0.13, 45, 0], [-10, 0, -45, 20]])
    np.testing.assert_allclose(rates_of(turns, load_scenario("hit-mac"))[0], [5 / 0.13, -5 / 0.13, 5 / 0.13, 0])
    np.testing.assert_allclose(rates_of(np.array([0.5, -1, 0, 0]), slow), [22.5, -45, 0, 0])


def test_steps_become_shares_and_shares_steps():
    duel = load_scenario("mate-2v4-0")
    steps, shares = np.array([[1, 2, 1, 2]]), np.array([[1.0, -1.0, -1.0, 1.0]])  # turns, then zooms
    assert shares_of(steps, duel).tolist() == shares.tolist()
    assert shares_of(shares, duel) is shares
    assert units_of(duel).tolist() == [[1, 1], [-1, -1]]
    assert steps_of(0.6 * shares, units_of(duel).mean(-1)).tolist() == steps.tolist()
    assert not steps_of(0.5 * shares, units_of(duel).mean(-1)).any()
    one, two = Simulator(duel, 1, 0), Simulator(duel, 1, 0)
    one.advance(one.command(steps, np.ones(1, bool)), np.ones(1, bool))
    two.advance(two.command(shares, np.ones(1, bool)), np.ones(1, bool))
    np.testing.assert_equal(one.get_state(), two.get_state())


def test_shares_become_the_steps_that_they_were_in_training():
    """A turn of 5 degrees is a small share of a fast motor's highest rate; in games zooms are wider over 0."""
    fast, duel = MOTORS.replace(turn_angle=5, time_step=0.1, turn_rates=200), load_scenario("mate-2v4-0")
    policy = SimpleNamespace(predict=lambda *seen: (shares, None))
    shares = np.array([[0.2, -0.2, 0.1, 0.0]])
    assert FittedActions(policy, fast.replace(action="rate"), fast).predict({})[0].tolist() == [[1, 2, 0, 0]]
    shares = np.array([[0.6, -0.4, 1.0, -1.0]])
    assert FittedActions(policy, duel.replace(action="rate"), duel).predict({})[0].tolist() == [[1, 0, 2, 1]]


def test_tilts_and_zooms_are_those_of_actions_or_shares():
    both = load_scenario("hit-mac").replace(
        num_sensors=2, tilt_limits=((5, 75),), tilt_step=4, mount_height=100, vertical_view=24, zoom=(20, 90),
        zoom_step=10,
    )  # fmt: skip
    assert both.decisions == ("turn", "zoom", "tilt")
    for actions in (np.array([0, 0, 2, 1, 1, 2]), np.array([0.0, 0.0, 1.0, -1.0, 1.0, -1.0])):
        found = settings_of(actions, both)
        assert {name: part.tolist() for name, part in found.items()} == {"tilt": [4, -4], "zoom": [10, -10]}
    assert settings_of(np.array([1, 2]), both) == {}


@pytest.mark.parametrize("name", ["greedy", "assign-all", "memoryless:nearest"])
def test_agents_that_turn_play_at_rates(name):
    by_turns, by_rates = (load_agent(name, scenario) for scenario in (BY_RATE.with_turns(), BY_RATE))
    tasks = [CoverageTask(one, 2, 5, features=by_turns.features) for one in (BY_RATE.with_turns(), BY_RATE)]
    states = [started(agent.policy, [5, 6]) for agent in (by_turns, by_rates)]
    for _ in range(8):
        for k, agent in enumerate((by_turns, by_rates)):
            actions, states[k] = agent.policy.predict(tasks[k].observe(), states[k])
            tasks[k].step(actions)
    now, then = (task.simulator.state for task in tasks)
    np.testing.assert_allclose(now.heading, then.heading, atol=1e-9)
    assert now.rate.any()
