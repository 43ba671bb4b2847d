"""The runner of an exported folder, without torch and without this package."""

import subprocess
import sys

import numpy as np
import pytest

from hitmac.agents import LevelPolicy, load_agent
from hitmac.agents.learned.recurrent import RECURRENT_FEATURES
from hitmac.agents.registry import as_hierarchy, as_level
from hitmac.envs import Simulator, load_scenario
from hitmac.envs.observation import DEFAULT_FEATURES, Observer
from tests.agents.deploy.export.made import agent_of, hierarchy
from tests.agents.untrained import untrained

ALONE = """
import importlib.abc, runpy, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numba", "gymnasium", "hitmac", "envs", "agents", "perception"):
            raise ModuleNotFoundError(f"{name} is refused")

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
runpy.run_path(sys.argv[1] + "/run.py", run_name="__main__")
"""
PLACES = [(-500, 0), (500, 0), (0, 500), (0, -500)]
TARGETS = np.array([(100, 50), (-300, 20), (10, -60), (500, 700), (-900, 200), (0, 333), (-40, -800)])


def test_the_runner_needs_neither_torch_nor_this_package(flat):
    made = {"features.py", "observe.py", "policy.json", "policy.onnx", "run.py"}
    assert {path.name for path in flat.iterdir()} == made
    command = [sys.executable, "-P", "-c", ALONE, str(flat)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=flat, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 20
    assert lines[0].startswith("0 turn [")


LIMITS = [(-60, -20), (30, 75), (-180, 180), (170, 210)]
BUSY = load_scenario("hit-mac").replace(  # sensors fail, targets come and go, behind walls
    failure_rate=0.02, recovery_rate=0.3, leave_rate=0.05, return_rate=0.15, extra_move_every=0, pan_limits=LIMITS,
    walls=[(-600, -400, 400, 500), (300, -900, 300, 200)], discs=[(-300, 600, 150)],
)  # fmt: skip
SHARED = BUSY.replace(pan_limits=(), knowledge="shared", missed_detections=0.1)
NEAR = {"nearest": 3, "radius": 1500.0, "neighbours": 3}
AGENTS = {
    "full": lambda: load_agent("pretrained:flat", BUSY),
    "obstacles": lambda: agent_of(BUSY, features=(*DEFAULT_FEATURES, "in_sight", "seen_if_turned")),
    "nearest": lambda: agent_of(BUSY, nearness=NEAR, attend_over="agents"),
    "both levels": lambda: hierarchy(BUSY),
    "shared": lambda: load_agent("pretrained:flat", SHARED),
    "recurrent": lambda: agent_of(SHARED, features=RECURRENT_FEATURES, memory="recurrent"),
}


@pytest.mark.parametrize("kind", AGENTS)
def test_the_runner_decides_as_the_agent_does_in_an_episode(kind, runner_of):
    agent, scenario = AGENTS[kind](), SHARED if kind in ("shared", "recurrent") else BUSY
    own, simulator = runner_of(agent, scenario).Agent(), Simulator(scenario, 1, 3)
    observer, rng = Observer(scenario, agent.features, **agent.nearness), np.random.default_rng(0)
    policy, last, different, stopped = None, set(), 0, 0
    for step in range(80):
        shown, state, left, measured = observer.observe(simulator), simulator.state, [], {}
        expected, policy = agent.policy.predict(shown, policy, np.array([step == 0]), deterministic=True)
        position, now = state.target_position[0], state.present[0]
        if scenario is SHARED:
            known = simulator.known
            left, now = np.flatnonzero(known.known_left[0, 0]), known.noticed[0].any(0)
        now = rng.permutation(np.flatnonzero(now)) if step else np.flatnonzero(now)
        if scenario is SHARED:
            measured["seen"] = known.noticed[0][:, now]
        if not set(now) <= last:  # the velocity of a new target needs to be measured
            measured["target_before"] = (position - state.velocity[0] * scenario.time_step)[now]
        last = set(now)
        actions = own.decide(
            position[now],
            [f"person {j}" for j in now],
            {f"person {j}" for j in left},
            sensor_position=state.sensor_position[0],
            heading=np.where(state.working[0], state.heading[0], np.nan),
            **measured,
        )
        heading, working = state.heading[0].copy(), state.working[0].copy()
        simulator.step(expected)
        working &= simulator.state.working[0]
        turned = (simulator.state.heading[0] - heading)[working] / scenario.turn_angle
        different += (np.array([0, 1, -1])[actions[0, working]] != np.rint(turned)).sum()
        stopped += ((expected[0, working] != 0) & (turned == 0)).sum()
    assert different <= 1  # a tie
    assert (stopped > 10) == bool(scenario.pan_limits)


def test_any_number_of_targets_comes_and_goes(runner_of):
    run, sensors = runner_of(AGENTS["full"](), BUSY), {"sensor_position": PLACES, "heading": [-40, 50, 0, 200]}
    own = run.Agent()
    for number in (1, 3, 2, 0, 7, 4):
        targets, own.kept = {"target_position": TARGETS[:number], "target_before": TARGETS[:number] - 9}, {}
        np.testing.assert_array_equal(own.decide(**targets, **sensors), run.Agent().decide(**targets, **sensors))
    run = runner_of(AGENTS["recurrent"](), SHARED)
    own = run.Agent()
    for k in range(30):
        own.decide(TARGETS[:1] + k, [f"passer-by {k}"], **sensors)
    assert own.kept["state"].shape[2] == 5  # the longest unseen are forgotten
    run = runner_of(AGENTS["shared"](), SHARED)
    own, other = run.Agent(), run.Agent()
    own.decide(TARGETS[:2], ["a", "b"], **sensors)
    other.decide(TARGETS[:1], ["a"], **sensors)
    for left in ["b"], [], []:
        one, same = (agent.decide([], [], left, **sensors) for agent in (own, other))
        np.testing.assert_array_equal(one, same)


def test_the_example_starts_from_the_headings_of_the_site_and_stays_within_its_limits(runner_of):
    site = BUSY.replace(sensor_headings=(-20, 75, 100, 170))
    run, headings = runner_of(AGENTS["full"](), site), []

    class Watched(run.Agent):
        def decide(self, *arguments, heading, **measured):
            headings.append(heading.copy())
            return super().decide(*arguments, heading=heading, **measured)

    run.main.__globals__["Agent"] = Watched
    run.main()
    assert headings[0].tolist() == list(site.sensor_headings)
    low, high = np.transpose(LIMITS)
    assert ((low <= headings) & (headings <= high))[:, [0, 1, 3]].all()
    assert np.ptp(headings, 0).any()


def test_an_assignment_holds_for_ten_sub_steps_and_idle_sensors_hold_or_turn(runner_of):
    rng, assigned, turns = np.random.default_rng(0), [], []
    agent, scenario = hierarchy(), load_scenario("hit-mac")
    for idle in ("hold", "random"):
        agent.policy.idle = idle
        own = runner_of(agent, scenario).Agent()
        for _ in range(30):
            measured = {"sensor_position": rng.uniform(-900, 900, (4, 2)), "heading": rng.uniform(-180, 180, 4)}
            turns.append(own.decide(rng.uniform(-900, 900, (5, 2)), **measured)[0])
            assigned.append(own.kept["assigned"][0].copy())
    assert [k for k in range(1, 30) if (assigned[k] != assigned[k - 1]).any()] == [10, 20]
    idle, turns = ~np.array(assigned).any(-1), np.array(turns)
    assert not turns[:30][idle[:30]].any()
    assert turns[30:][idle[30:]].any()


@pytest.mark.parametrize("highest", [60, 20])
def test_idle_sensors_turn_by_the_shares_of_a_turn(highest, runner_of):
    scene = load_scenario("hit-mac").replace(time_step=0.1, turn_rates=highest, action="rate")
    coordinator, of_first = untrained(scene, "Coordinator", noise=0.5)
    executor = as_level(*untrained(scene, "Executor", noise=0.5), scene)
    agent = as_hierarchy("both", scene, LevelPolicy(coordinator, of_first.features), executor, idle="random")
    own, sensors = runner_of(agent, scene).Agent(), {"sensor_position": PLACES, "heading": [-40, 50, 0, 200]}
    found = {turn for _ in range(20) for turn in own.decide([], **sensors, rate=np.zeros(4))[0].tolist()}
    turn = min(5 / 0.1 / highest, 1.0)
    assert sorted(found) == pytest.approx([-turn, 0, turn])
