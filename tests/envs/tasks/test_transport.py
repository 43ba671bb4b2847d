"""Transport task, opponents of both teams, rates of zooming sensors, and the ends of duels."""

import gymnasium
import numpy as np
import pytest

from hitmac import envs
from hitmac.envs import load_scenario
from hitmac.envs.tasks import CoverageTask, TransportTask, base
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

SMALL = "mate-2v4-0"


class Recorder:
    """Player that stores what it is asked, and always makes the same action."""

    def __init__(self, action):
        self.action, self.asked = np.array(action, float), []

    def act(self, duel, starts, chosen):
        self.asked.append((starts.tolist(), chosen.tolist()))
        return self.action


@pytest.mark.parametrize(
    ("kind", "action", "wanted"),
    [
        ("turn", np.array([[0, 1, 5, 9]]), [[0, 0], [1, 0], [0, 1], [-1, 0]]),
        ("turn", np.array([[3, 15, 11, 7]]), np.sqrt(0.5) * np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]])),
        ("rate", np.array([[0, 0.5, 0, 1, 0, 0, -1, 1]], np.float32), [[0, 0], [0.5, 0], [0, -1], [np.sqrt(0.5)] * 2]),
    ],
)  # fmt: skip
def test_moves_are_the_longest_steps_in_sixteen_directions_or_shares_of_them(kind, action, wanted):
    task = TransportTask(envs.load_scenario(SMALL).replace(action=kind), 1, 0)
    task.reset(options={"target_position": np.zeros((4, 2)), "sensor_position": np.full((2, 2), 700.0)})
    task.step(action)
    steps = 20.0 / task.simulator.game.cargo.capacity[0][:, None]
    np.testing.assert_allclose(task.simulator.state.target_position[0], wanted * steps, atol=1e-12)


def test_rates_of_zooming_sensors_are_shares_of_the_turn_and_the_zoom():
    task = CoverageTask(envs.load_scenario(SMALL).replace(action="rate"), 1, 0)
    assert task.action_space == gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    task.reset(options={"heading": [0, 90]})
    task.simulator.state.field_of_view[:] = 100
    task.step(np.array([[1, -0.5, 0.2, -1]], np.float32))
    np.testing.assert_allclose(task.simulator.state.heading, [[5, 87.5]])
    np.testing.assert_allclose(task.simulator.state.field_of_view, [[100.5, 97.5]], rtol=1e-7)


def test_an_opponent_plays_the_other_team_and_learns_of_new_episodes():
    targets, sensors = Recorder(np.full((3, 4, 2), 1.0)), Recorder(np.full((3, 2, 2), 2.0))
    for kind, player, moved in ((CoverageTask, targets, "target_position"), (TransportTask, sensors, "heading")):
        task = kind(SMALL, 3, 0, opponent=player)
        assert task.opponent is player
        before = getattr(task.simulator.state, moved).copy()
        some, others, everyone = [True, False, True], [False, True, False], [True] * 3
        task.step(np.zeros((3, 4), int), np.array(some))
        change = getattr(task.simulator.state, moved) - before
        assert (np.abs(change).max(axis=tuple(range(1, change.ndim))) > 0).tolist() == some
        task.step(np.zeros((3, 4), int))
        task.reset(mask=np.array(others))
        task.step(np.zeros((3, 4), int))
        assert player.asked == [(everyone, some), (others, everyone), (others, everyone)]


def test_opponents_by_name(monkeypatch):
    """Rules of MATE, others by `hitmac.agents`; by default the walk, and greedy sensors."""
    for kind, name in ((CoverageTask, "naive"), (TransportTask, "mate:greedy")):
        named, other = kind(SMALL, 2, 5, opponent=name), kind(SMALL, 2, 5)
        if kind is CoverageTask:
            other = kind(envs.load_scenario(SMALL).replace(walk="carry-naive"), 2, 5)
        for _ in range(30):
            for task in (named, other):
                task.step(np.ones((2, 4), int))
        np.testing.assert_equal(named.simulator.get_state(), other.simulator.get_state())
    monkeypatch.setattr(base, "find_player", lambda *given: given)
    scenario = envs.load_scenario(SMALL)
    for name in ("mine", "greedy"):  # of the sensors, greedy is the agent of this package everywhere
        assert base.find_opponent(name, scenario, "sensors") == (name, scenario, "sensors")


def test_a_duel_terminates_when_all_has_arrived_and_is_truncated_at_the_time_limit():
    """In every environment; scene 0 of a batch ends early. Only a time limit is one to a learner."""
    options = {"scenario": SMALL, "max_episode_steps": 3}
    vector = gymnasium.make_vec("dsn/Transport-v0", num_envs=2, autoreset_mode="Disabled", **options)
    rows = DirectionalSensorVecEnv("Transport", 2, SMALL, max_episode_steps=3)
    agents = envs.parallel_env("Transport", **options)
    single = gymnasium.make("dsn/Transport-v0", **options)
    for env in (vector, rows, agents, single):
        env.reset()
    still = np.zeros((2, 4), int)
    for step in range(1, 4):
        if step == 3:
            for env in (vector, rows, agents, single.unwrapped):
                env.task.simulator.game.cargo.awaiting[0] = 0
        terminated, truncated = vector.step(still)[2:4]
        infos = rows.step(still)[3]
        ends = agents.step(dict.fromkeys(agents.agents, 0))
        assert terminated.tolist() == [step == 3, False]
        assert truncated.tolist() == [False, step == 3]
        assert [info["TimeLimit.truncated"] for info in infos] == [False, step == 3]
        assert [set(end.values()) for end in ends[2:4]] == [{step == 3}, {False}]
        assert single.step(still[0])[2:4] == ((True, True) if step == 3 else (False, False))  # gymnasium's limit, too
    assert agents.agents == []
    assert {"coverage", "transport"} <= set(infos[0])


def test_what_does_not_fit_a_duel_is_refused():
    for make, says in (
        (
            lambda: TransportTask("hit-mac"),
            "scenario 'hit-mac' has no warehouses; only games have the features of entities",
        ),
        (
            lambda: CoverageTask("hit-mac", opponent="greedy"),
            "opponent is 'greedy'; it must be None in a scenario with",
        ),
        (lambda: CoverageTask("hit-mac", reward="duel"), "reward is 'duel'; it must be coverage in a scenario without"),
        (lambda: TransportTask(SMALL, opponent=3), "unknown rule 3 of the sensors: known are random, naive, greedy"),
        (lambda: TransportTask(SMALL, 1).step(np.array([[0, 0, 0, 17]])), "action holds 17; it must be 0 .* to 16"),
    ):
        with pytest.raises(ValueError, match=says):
            make()


# --- rewards for learners ---


def test_the_rewards_of_targets_are_their_parts_of_the_game_or_shared():
    plain, shared = tasks = [TransportTask(SMALL, 4, 2, share=share) for share in (0.0, 0.75)]
    for _ in range(150):
        owed = plain.simulator.game.cargo.bounty > 0
        way = plain.simulator.state.goal - plain.simulator.state.target_position
        moves = 1 + np.round(np.degrees(np.arctan2(way[..., 1], way[..., 0])) / 22.5).astype(int) % 16
        action = np.where(plain.simulator.game.cargo.goal >= 0, moves, 0)  # towards the goals of those with a load
        team, _ = [task.step(action) for task in tasks]
        own = plain.sensor_rewards()
        np.testing.assert_allclose(100 * own.sum(1), team)
        np.testing.assert_allclose(shared.sensor_rewards(), 0.25 * own + 0.75 * team[:, None] / 400, atol=1e-12)
        np.testing.assert_array_equal(own < 0, owed & plain.simulator.state.covered & (own < 1))
    assert plain.simulator.game.cargo.delivered.min() > 0


def test_real_coverage_is_that_of_targets_with_a_bounty():
    """Neither it nor the reward of a duel counts targets by value."""
    valued = load_scenario(SMALL).replace(target_values=[0.0, 1.0, 2.0, 0.0])
    task = CoverageTask(valued, 8, 2, reward="real_coverage", turn_cost=0.5)
    duels = [CoverageTask(scenario, 8, 2, reward="duel") for scenario in (SMALL, valued)]
    for _ in range(30):
        task.simulator.game.cargo.bounty[:, 0] = 0.0  # a decoy
        reward = task.step(np.tile([1, 0, 0, 0], (8, 1)))
        np.testing.assert_array_equal(*(duel.step(np.tile([1, 0, 0, 0], (8, 1))) for duel in duels))
        covered = task.simulator.state.covered[:, 1:]
        np.testing.assert_allclose(reward, covered.mean(1) - 0.5 * 1 / 2)
    assert covered.any()
