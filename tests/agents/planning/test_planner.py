"""Planners: by hand, by what they remember and may know, and by what they cover."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents import load_agent, scripted_agent
from hitmac.agents.planning.planner import BeliefPlannerAgent, PlannerAgent
from hitmac.agents.policy import padded_actions
from hitmac.agents.tracking.sight import VIEW_NEAR, VIEW_RANGE
from hitmac.agents.tracking.walk_model import SEEN
from hitmac.envs import Scenario, load_scenario
from hitmac.envs.deployment import KNOWLEDGE
from hitmac.envs.observation import Observer
from hitmac.envs.simulator import Simulator
from hitmac.envs.tasks import CoverageTask
from tests.agents.play import coverage, first_actions, play

PLANNERS = ("planner", "planner-fast", "belief-planner", "belief-planner-fast", "belief-planner-fastest")
STILL = {"walk": "still", "extra_move_every": 0}
ONE = Scenario(num_sensors=1, num_targets=1, **STILL)
TWO = Scenario(num_sensors=2, num_targets=2, **STILL)
AHEAD = ONE.replace(walk="bounce", speed_noise=0, time_step=1)
MOTOR = {"turn_rates": 45, "command_delay": 3, "pan_limits": [(-180, 180)]}
HERE = {"sensor_position": [(0, 0)], "heading": [0]}
SMALL = {"horizon": 20, "samples": 8, "particles": 32}


def small(scenario, seed=0, **options):
    """A planner of few samples."""
    return PlannerAgent(scenario, seed, **SMALL | options)


def arrays_of(state):
    """The arrays of a planner's state by name."""
    return state.beliefs._asdict() | {"plans": state.plans, "ways": state.ways}


# --- by hand ---


@pytest.mark.parametrize("name", ["greedy", *PLANNERS])
def test_sensors_turn_the_short_way_and_leave_to_others_what_others_see(name):
    agent = scripted_agent(name, ONE)
    for degrees, turn in ((0, 0), (44, 0), (60, 1), (-60, 2), (120, 1), (-120, 2)):
        place = 500 * np.cos(np.radians(degrees)), 500 * np.sin(np.radians(degrees))
        assert first_actions(agent, ONE, **HERE, target_position=[place]) == [turn], degrees
    agent = scripted_agent(name, TWO)
    places = {"sensor_position": [(0, 0), (10, 0)], "heading": [0, 0]}
    # One holds the first target, the other turns to the second.
    assert sorted(first_actions(agent, TWO, **places, target_position=[(500, 0), (0, 500)])) == [0, 1]
    assert first_actions(agent, TWO, **places, target_position=[(500, 0), (900, 0)]) == [0, 0]  # out of range


@pytest.mark.parametrize(("degrees", "turns"), [(52, [1, 1]), (-62, [2, 2, 2, 2]), (44, [])])
@pytest.mark.parametrize("identities", [True, False])
def test_commands_that_are_pending_are_not_given_again(identities, degrees, turns):
    """The target comes into view once all have taken effect, also where a motor needs time to stop."""
    scenario = ONE.replace(**MOTOR, identities=identities)
    place = 500 * np.cos(np.radians(degrees)), 500 * np.sin(np.radians(degrees))
    played = [*play(small(scenario), scenario, 10, **HERE, target_position=[place])]
    assert [int(actions[0, 0]) for _, actions, _ in played] == turns + [0] * (10 - len(turns))
    state = played[-1][0].simulator.state
    assert (state.visible.all(), state.pending_turn.any()) == (True, False)
    slow = scenario.replace(acceleration=100)
    state = [*play(small(slow), slow, 20, **HERE, target_position=[place])][-1][0].simulator.state
    assert (state.visible.all(), state.rate.any()) == (True, False)
    assert abs(degrees - state.heading.item()) > 35  # and no farther


@pytest.mark.parametrize("name", PLANNERS)
def test_a_target_is_foreseen(name):
    agent = scripted_agent(name, AHEAD, discount=1.0)
    # It stands in view near the left edge and moves out to the left: turn before it is gone.
    for velocity, turn in (((-30, 30), 1), ((30, -30), 0)):
        assert first_actions(agent, AHEAD, velocity, **HERE, target_position=[(300, 290)]) == [turn]
    # It enters the range behind the sensor, which has to turn by then: after 10 sub-steps, after 50, never.
    for velocity, turn in (((20, 0), 1), ((4, 0), 0), ((-20, 0), 0)):
        assert first_actions(agent, AHEAD, velocity, **HERE, target_position=[(-1000, 0)]) == [turn]


@pytest.mark.parametrize("name", PLANNERS)
def test_sensors_that_cost_differ_or_fail(name):
    aside = HERE | {"target_position": [(0, 500)]}
    for cost, turn in ((0.5, 1), (6.0, 0)):
        assert first_actions(scripted_agent(name, ONE, turn_cost=cost, discount=1.0), ONE, **aside) == [turn]
    wide = Scenario(num_sensors=2, num_targets=1, field_of_view=(30, 200), **STILL)
    places = {"sensor_position": [(0, 0), (0, 10)], "heading": [0, 0], "target_position": [(0, 400)]}
    if name != "belief-planner-fastest":  # in whose one ascent the first sensor plans as if it were alone
        assert first_actions(scripted_agent(name, wide), wide, **places) == [0, 0]  # the second sees it already
    failed = ONE.replace(failure_rate=1)
    *_, (_, actions, _) = play(scripted_agent(name, failed), failed, 2)
    assert actions.tolist() == [[0]]


RAIL = ONE.replace(rails=[[(-1000, 0), (1000, 0)]], rail_step=20, placement="rails")


@pytest.mark.slow
@pytest.mark.parametrize("knowledge", ["full", "own"])
@pytest.mark.parametrize(("target", "heading", "move"), [(895, 0, 1), (-895, 180, 2), (700, 0, 0)])
def test_a_sensor_moves_along_its_rail_until_a_target_is_in_range_and_stays(knowledge, target, heading, move):
    """With its own knowledge, it has seen the target before it was set back along the rail."""
    scene = RAIL.replace(knowledge=knowledge)
    agent = BeliefPlannerAgent(scene, horizon=30, samples=1)
    task = CoverageTask(scene, 1, 0, features=agent.features)
    ahead = 200 if target > 0 else -200
    task.reset(options={"along": [1000 + ahead], "heading": [heading], "target_position": [(target, 0)]})
    _, state = agent.predict(task.observe(), None, np.ones(1, bool))
    task.step(np.zeros((1, 2), int))
    task.simulator.place(along=[1000])
    moves, covered = [], []
    for _ in range(8):
        action, state = agent.predict(task.observe(), state, np.zeros(1, bool))
        task.step(action)
        moves.append(action[0].tolist())
        covered.append(task.simulator.coverage[0])
    assert moves == ([[0, move]] * 5 + [[0, 0]] * 3 if move else [[0, 0]] * 8)
    assert covered == ([0] * 4 + [1] * 4 if move else [1] * 8)


def test_a_sensor_moves_round_a_corner():
    scene = RAIL.replace(rails=[[(0, -500), (0, 0), (1000, 0)]], rail_step=10)
    # Out of range from the corner, on the left of a sensor that moves up to it: turn right there, into the second part.
    places = {"along": [480], "heading": [0], "target_position": [(870, 0)]}
    (_, first, _), *_, (task, _, _) = play(PlannerAgent(scene, horizon=30, samples=1), scene, 12, **places)
    assert first[0].tolist() == [0, 1]
    assert task.simulator.coverage == 1


@pytest.mark.parametrize("changes", [{}, {"knowledge": "shared", "identities": False}])
def test_sensors_turn_the_long_way_round_a_limit(changes):
    """From 300 degrees, the upper limit, a target at 30 degrees is near to the left, and reached to the right only."""
    scene = ONE.replace(
        placement="fixed", sensor_positions=[(0, 0)], sensor_headings=[300], pan_limits=[(0, 300)], field_of_view=80,
        turn_angle=10, **changes,
    )  # fmt: skip
    agent, headings = PlannerAgent(scene, turn_cost=0.01), []
    for task, *_ in play(agent, scene, 60, target_position=[(100, 58)]):
        headings.append(task.simulator.state.heading[0, 0])
    assert task.simulator.coverage[0] == 1
    assert min(headings) < 75
    assert max(headings) <= 300


LENS = ONE.replace(zoom=(30, 120), zoom_step=20, sensing_range=500, turn_angle=1)  # of 90 degrees at the start
TILTING = ONE.replace(
    arena=40, placement="random", target_area=(-40, 40, -40, 40), sensing_range=25, tilt_limits=[(0, 80)], tilt_step=20,
    mount_height=4, vertical_view=40,
)  # fmt: skip


@pytest.mark.parametrize(
    ("scene", "targets", "chosen", "covered"),
    [
        (LENS, [(525, 0)], 1, 1),  # 500 at 90 degrees is 567 at 70
        (LENS.replace(num_targets=2), [(193, 230), (193, -230)], 2, 1),  # 50 degrees aside: in view over 100 degrees
        (LENS, [(400, 0)], 0, 1),
        *((TILTING, [(away, 0)], tilt, away < 25) for away, tilt in ((2, 1), (6, 0), (17, 2), (30, 0))),
    ],
)
def test_a_lens_and_a_tilt_show_near_and_far_targets_and_rest_for_one_out_of_range(scene, targets, chosen, covered):
    """From a height of 4 a camera sees from 2.3 to 11 at 40 degrees, to 0.7 at 60, and to the range at 20."""
    played = list(play(BeliefPlannerAgent(scene, horizon=10), scene, 2, **HERE, target_position=targets))
    assert [actions[0].tolist() for _, actions, _ in played] == [[0, chosen], [0, 0]]
    assert played[-1][0].simulator.coverage[0] == covered


def test_detections_show_the_tilt_to_planners():
    scene = TILTING.replace(identities=False, knowledge="shared")
    agent, task = BeliefPlannerAgent(scene, horizon=10), CoverageTask(scene, 1, 0)
    task.step(np.array([[0, 2]]))
    agent.predict(task.observe())
    (believed, _), state = agent._beliefs.update(**task.observe()), task.simulator.state
    assert believed.tilt == state.tilt == 20
    np.testing.assert_allclose(believed.views[0, 0, VIEW_NEAR], state.near_squared.item(), rtol=1e-5)
    np.testing.assert_allclose(believed.ahead[0, 0, VIEW_RANGE], 25**2)  # the lens; the view ends before it


GAME = load_scenario("mate-2v4-0").replace(
    num_sensors=1, num_targets=1, random_discs=1, transmittance=0, knowledge="full", sensing_range=500,
    field_of_view=90, zoom=(30, 90), min_speed=0.01, max_speed=0.02,
)  # fmt: skip


def game(scenario, **places):
    """A game with a planner, and with the sensor at the origin, which faces +x; its view is drawn from `zoom`."""
    agent = small(scenario, turn_cost=0)
    task = CoverageTask(scenario, 1, 0, features=agent.features, **agent.shown({}))
    task.simulator.place(sensor_position=[(0, 0)], heading=[0], **places)
    return agent, task


def test_the_lens_of_a_game_aims_many_steps_ahead():
    """At 90 degrees the range is 500, at 45 degrees 707; a step of 2.5 degrees does not yet show the target."""
    agent, task = game(GAME.replace(random_discs=0), target_position=[(700, 0)])
    state, seen = None, []
    for _ in range(60):
        action, state = agent.predict(task.observe(), state)
        task.step(action)
        seen.append(task.simulator.coverage.item())
    assert action[0].tolist() == [0, 0]
    assert seen[-1] == 1
    assert task.simulator.state.field_of_view.item() <= 90 * (500 / 700) ** 2


@pytest.mark.parametrize(("disc", "seen"), [((300, 0, 60), 0), ((300, 200, 60), 1), ((300, 0, 0), 1)])
def test_a_plan_knows_the_discs_of_a_game(disc, seen):
    """The value of staying is the number of sub-steps with the target in view."""
    agent, task = game(GAME, target_position=[(400, 0)])
    task.simulator.state.disc[:] = disc
    shown = task.observe()
    values, _ = agent.plan(shown["pairs"], shown["mask"] != 0, **agent.lists_of(shown))
    assert values[0, 0, 0] == pytest.approx(seen * (1 - 0.99**20) / 0.01, abs=0.1)
    with pytest.raises(ValueError, match="a game requires the observer's option discs=True"):
        agent.predict({name: shown[name] for name in ("pairs", "mask")})


@pytest.mark.parametrize("spent", [0, 0.5, 1])
def test_a_target_without_a_bounty_counts_by_its_share(spent):
    scene = GAME.replace(random_discs=0, knowledge="shared")
    agent, task = game(scene, target_position=[(400, 0)])
    agent, values = small(scene, turn_cost=0, samples=8, particles=8, spent=spent), []
    state = None
    for seen in (0, 0, 1e9):
        shown = task.observe()
        if state is not None:
            state.beliefs.body[:, :, :, SEEN] += seen
        found, state = agent.plan(shown["pairs"], shown["mask"] != 0, state, **agent.lists_of(shown))
        values.append(found[0, 0, 0])
        task.step(np.zeros((1, 2), int))
    assert values[2] == pytest.approx(spent * values[1], abs=0.01)
    assert values[1] > 10


@pytest.mark.parametrize(
    ("sensors", "headings"), [([(-100, 0)], [0]), ([(-900, 0)], [0]), ([(-500, 0), (0, 500)], [0, 270])]
)
def test_a_plan_expects_that_random_discs_hide_targets_from_each_sensor_apart(sensors, headings):
    """The value of the last sensor is the share of scenes in which only this one sees the target."""
    scene = load_scenario("obstacles").replace(
        num_sensors=len(sensors), num_targets=1, random_discs=9, zoom=(), sensing_range=1000, walk="still",
        placement="fixed", sensor_positions=sensors,
    )  # fmt: skip
    agent = PlannerAgent(scene, horizon=1, samples=64, particles=64)
    task = CoverageTask(scene, 400, 0, features=agent.features)
    task.reset(options={"heading": headings, "target_position": [(0, 0)]})
    task.step(np.zeros((400, len(sensors)), int))
    shown = task.observe()
    values, _ = agent.plan(shown["pairs"][:1], shown["mask"][:1] != 0)
    *others, last = task.simulator.state.visible[:, :, 0].T
    assert values[0, -1, 0] == pytest.approx((last & ~np.any(others, 0)).mean(), abs=0.05)


def test_a_camera_rides_to_where_no_wall_hides_the_target():
    """The wall over the rail hides the target from the places from -60 on."""
    scene = RAIL.replace(walls=[(-30, 50, 100, 50)], sensing_range=500)
    agent = BeliefPlannerAgent(scene, horizon=20)
    places = {"along": [1000], "heading": [90], "target_position": [(0, 100)]}
    played = [(actions[0].tolist(), task.simulator.coverage[0]) for task, actions, _ in play(agent, scene, 6, **places)]
    assert played == [([0, 2], 0)] * 3 + [([0, 2], 1)] + [([0, 0], 1)] * 2


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), sensors=st.integers(1, 3), extra=st.sampled_from([0, 3]))
def test_targets_that_evade_are_foreseen_as_they_walk(seed, sensors, extra):
    """The value of staying is the number of sub-steps in which only this sensor covers a target, if none turns."""
    scenario = Scenario(
        num_sensors=sensors, num_targets=6, arena=1500, walk="evade", speed_noise=0, time_step=1, max_speed=100,
        min_speed=20, extra_move_every=extra, whole_numbers=False,
    )  # fmt: skip
    agent = BeliefPlannerAgent(scenario, horizon=20, samples=1, turn_cost=1000, discount=1.0, restarts=0)
    task = CoverageTask(scenario, 1, seed, features=agent.features)
    _, state = agent.predict(task.observe())
    task.step(np.zeros((1, sensors), int))
    shown = task.observe()
    values, alone = agent.plan(shown["pairs"], shown["mask"] != 0, state)[0][0, :, 0], np.zeros(sensors)
    for _ in range(20):
        task.step(np.zeros((1, sensors), int))
        visible = task.simulator.state.visible[0]
        alone += (visible & (visible.sum(0) == 1)).sum(-1)
    assert values == pytest.approx(alone)


# --- values of targets ---

RIGHT_HALF = [(0, -1250), (1250, -1250), (1250, 1250), (0, 1250)]


def test_sensors_prefer_the_valuable_zone():
    apart = ONE.replace(num_targets=3)
    places = HERE | {"heading": [90], "target_position": [(400, 0), (-400, 0), (-410, 0)]}
    for zone, turn in (({}, 1), ({"zones": [RIGHT_HALF], "zone_values": [5]}, 2), ({"target_values": (2.5, 1, 1)}, 2)):
        assert first_actions(PlannerAgent(apart.replace(**zone)), apart.replace(**zone), **places) == [turn]


def test_sensors_meet_where_several_must_see_a_target():
    places = {
        "sensor_position": [(0, 0), (10, 0), (20, 0)], "heading": [0, 0, 0], "target_position": [(0, 500), (0, -510)]
    }  # fmt: skip
    scene, turns = Scenario(num_sensors=3, num_targets=2, **STILL), []
    for seen_by in (1, 2, 3):
        changed = scene.replace(seen_by=seen_by)
        *_, (task, _, _) = play(PlannerAgent(changed), changed, 25, **places)
        turns.append(np.sort(task.simulator.state.visible[0].sum(0)).tolist())
        assert task.simulator.coverage[0] == (1 if seen_by == 1 else 0.5)
    assert turns[1] in ([0, 2], [1, 2])
    assert turns[2] == [0, 3]


@pytest.mark.parametrize("seen_by", [1, 2])
def test_values_of_one_and_scaled_values_change_no_plan(seen_by):
    plain = Scenario(num_sensors=3, num_targets=6, seen_by=seen_by)
    whole, one, double = [(-1250, -1250), (1250, -1250), (1250, 1250), (-1250, 1250)], (1,) * 6, (2,) * 6
    for changes in ({"target_values": one}, {"target_values": double}, {"zones": [whole], "zone_values": [1]}):
        scenario, states = plain.replace(**changes), []
        for each in (plain, scenario):
            *_, (_, _, state) = play(small(each), each, 8, 3)
            states.append(arrays_of(state))
        np.testing.assert_equal(*states)


# --- values and memory ---


def test_actions_are_those_of_the_highest_value_and_a_state_can_be_used_again():
    scenario = load_scenario("hit-mac").replace(knowledge="shared")
    agent = small(scenario)
    *_, (task, _, state) = play(agent, scenario, 15, 6)
    before, shown = {name: array.copy() for name, array in arrays_of(state).items()}, task.observe()
    values, _ = agent.plan(shown["pairs"], shown["mask"] != 0, state)
    actions, on = agent.predict(shown, state)
    assert (values.shape, values.dtype) == ((6, 4, 3), np.float32)
    np.testing.assert_array_equal(actions, values.argmax(-1))
    start = np.array([True, False] * 3)
    after, on = arrays_of(agent.predict(shown, state, start)[1]), arrays_of(on)
    fresh = arrays_of(agent.predict(shown, None, np.ones(6, bool))[1])
    for name, array in arrays_of(state).items():
        np.testing.assert_array_equal(array, before[name])
        np.testing.assert_array_equal(after[name][::2], fresh[name][::2])
        np.testing.assert_array_equal(after[name][1::2], on[name][1::2])


def test_a_state_of_other_scenes_is_refused():
    agent, shown = small(TWO), {}
    for scenes in (2, 3):
        shown[scenes] = CoverageTask(TWO, scenes, 0, features=agent.features).observe()
    with pytest.raises(ValueError, match=r"state belongs to other scenes: .* \(2, .* \(3, "):
        agent.predict(shown[3], agent.predict(shown[2])[1])


def test_where_nothing_is_to_be_gained_a_turn_costs_the_same_to_either_side():
    pairs = np.zeros((3, 2, 2, len(PlannerAgent.features)), np.float32)
    pairs[..., PlannerAgent.features.index("heading_cos")] = 1.0
    values, _ = PlannerAgent(TWO).plan(pairs, np.zeros((3, 2, 2), bool))
    assert (values[..., 0] == 0).all()
    assert (values[..., 1] == values[..., 2]).all()
    assert (values[..., 1:] < 0).all()


@pytest.mark.parametrize(
    ("scene", "knowledge", "threads"),
    [
        ("random", "full", 1),
        ("random", "neighbours", 1),
        pytest.param("random", "shared", 2, marks=pytest.mark.slow),  # compiles for threads
        ("hit-mac", "own", 1),
        ("basketball-4", "shared", 1),
    ],
)
def test_batches_and_threads_change_nothing_and_seeds_do(scene, knowledge, threads, use_threads):
    scenario = load_scenario(scene).replace(knowledge=knowledge)
    few = {"per_length": 4} if knowledge == "shared" else {}

    def played(seed, scenes, first):
        return [(actions, state) for _, actions, state in play(agent(seed), scenario, 12, scenes, first)]

    def agent(seed):
        return small(scenario, seed, **few)

    together, alone, other = played(1, 20, 5), played(1, 1, 12), played(2, 20, 5)
    for (actions, _), (own, _) in zip(together, alone, strict=True):
        np.testing.assert_array_equal(actions[7], own[0])
    assert any((one != another).any() for (one, _), (another, _) in zip(together, other, strict=True))
    if threads > 1:
        use_threads(threads)
        np.testing.assert_equal(arrays_of(together[-1][1]), arrays_of(played(1, 20, 5)[-1][1]))


@pytest.mark.parametrize(("walk", "per_length"), [("goals", 0), ("goals", 7), ("bounce", 0)])
def test_targets_are_in_view_for_as_long_as_foreseen(walk, per_length):
    """The value of staying is the expected coverage of an all-round sensor, in the mean and scene by scene.

    Forecasts without turns to goals are a fifth too low.
    """
    scenario = load_scenario("hit-mac").replace(
        num_sensors=1, num_targets=3, field_of_view=360, turn_angle=180, sensing_range=500, placement="grid", walk=walk,
        wander=40,
    )  # fmt: skip
    options = {"horizon": 100, "discount": 1.0, "restarts": 0, "particles": 64, "per_length": per_length}
    few, many = (PlannerAgent(scenario, samples=k, **options) for k in (1, 64))
    *_, (task, _, state) = play(few, scenario, 40, 400, 11)
    shown = task.observe()
    foreseen = many.plan(shown["pairs"], shown["mask"] != 0, state)[0][:, 0, 0]
    covered = np.zeros(400)
    for _ in range(100):
        task.step(np.zeros((400, 1), int))
        covered += task.simulator.state.covered.sum(-1)
    assert foreseen.mean() == pytest.approx(covered.mean(), rel=0.05)
    assert np.corrcoef(foreseen, covered)[0, 1] > 0.84


@pytest.mark.parametrize("knowledge", ["neighbours", "own"])
def test_no_sensor_uses_what_another_one_knows(knowledge):
    scenario = load_scenario("hit-mac").replace(knowledge=knowledge, message_loss_rate=0.3)
    agent, rng = small(scenario), np.random.default_rng(0)
    for task, _, state in play(agent, scenario, 6, 12):
        shown = task.observe()
        expected = agent.plan(shown["pairs"], shown["mask"] != 0, state)[0]
        changed = {key: array.copy() for key, array in shown.items()}
        of_targets = slice(0, 6)  # the other features are the sensor's position and heading, which all know
        changed["pairs"][:, 1:, :, of_targets] = rng.uniform(-0.5, 0.5, changed["pairs"][:, 1:, :, of_targets].shape)
        changed["mask"][:, 1:] = rng.integers(0, 2, changed["mask"][:, 1:].shape)
        values = agent.plan(changed["pairs"], changed["mask"] != 0, state)[0]
        np.testing.assert_array_equal(values[:, 0], expected[:, 0])
    assert (values[:, 1:] != expected[:, 1:]).any()


def test_it_turns_back_to_where_it_saw_a_target():
    """The target is seen only at the start; then the sensor is turned away by hand."""
    scenario = ONE.replace(knowledge="own")
    agent = BeliefPlannerAgent(scenario)
    *_, (task, _, state) = play(agent, scenario, 1, **HERE, target_position=[(500, 0)])
    _, state = agent.predict(task.observe(), state)  # sensors that are placed before the first step have seen nothing
    for heading, turn in ((100, 2), (-100, 1), (20, 0)):
        task.simulator.place(heading=[heading])
        task.step(np.zeros((1, 1), int))
        actions, _ = agent.predict(task.observe(), state)
        assert actions.tolist() == [[turn]]


@pytest.mark.parametrize("identities", [True, False])
def test_it_finds_what_was_never_seen(identities):
    scenario = ONE.replace(knowledge="own", target_area=(-600, 600, -600, 600), identities=identities)
    found = np.zeros(30, bool)
    for task, actions, _ in play(BeliefPlannerAgent(scenario), scenario, 72, 30, sensor_position=[(0, 0)]):
        found |= task.simulator.state.visible[:, 0, 0]
        assert found.all() or (actions[~found] != 0).any()
    within = np.linalg.norm(task.simulator.state.target_position[:, 0], axis=-1) < 800
    assert found[within].mean() > (0.99 if identities else 0.9)  # a whole turn takes 72 sub-steps


@pytest.mark.parametrize("delay", [0, 4])
def test_views_that_count_for_several_sub_steps_are_those_in_their_middle(delay):
    """Looks last 1, 1, 2, 2, 3 and 2 sub-steps; a target in range from sub-step h on counts if their middle is.

    They begin when a command takes effect.
    """
    scenario = AHEAD.replace(field_of_view=360, sensing_range=800, **MOTOR | {"command_delay": delay})
    agent = BeliefPlannerAgent(scenario, horizon=11, samples=1, discount=1.0, per_length=2)
    for h, count in zip(range(1, 12), (11, 10, 9, 7, 7, 5, 5, 5, 2, 2, 0), strict=True):
        task = CoverageTask(scenario, 1, 0, features=agent.features)
        task.simulator.place(**HERE, target_position=[(800 + 20 * (h + delay) - 10, 0)])
        task.simulator.state.velocity[:] = (-20, 0)
        shown = task.observe()
        assert agent.plan(shown["pairs"], shown["mask"] != 0)[0][0, 0, 0] == count, h


# --- lists of the nearest targets ---


COMPILES = pytest.mark.slow  # kernels of their own for beliefs and lists
MANY = load_scenario("random").replace(num_targets=12)
COURT = load_scenario("volleyball-4").replace(sensing_range=150.0)
VALUED = {"zones": [RIGHT_HALF], "zone_values": [4], "target_values": (0, 1, 2, 3) * 3, "seen_by": 2, "min_sensors": 3}
UNSTEADY = {"leave_rate": 0.05, "return_rate": 0.1, "failure_rate": 0.1, "recovery_rate": 0.3}
NOISY = {"position_noise": 10.0, "missed_detections": 0.2, "message_loss_rate": 0.2}


@pytest.mark.parametrize(
    ("knowledge", "scenario", "options"),
    [
        ("full", MANY.replace(**UNSTEADY), {}),
        pytest.param("shared", MANY.replace(sensing_range=400, **NOISY), {}, marks=COMPILES),
        pytest.param("neighbours", MANY.replace(sensing_range=400, **UNSTEADY), {}, marks=COMPILES),
        pytest.param("own", MANY.replace(sensing_range=400), {"per_length": 3}, marks=COMPILES),
        pytest.param("shared", COURT, {}, marks=COMPILES),
        pytest.param("full", MANY.replace(zoom=(60, 120)), {}, marks=COMPILES),
        pytest.param("full", MANY.replace(**VALUED), {}, marks=COMPILES),
    ],
)
def test_plans_are_those_of_all_targets_where_the_lists_hold_all(knowledge, scenario, options):
    scenario = scenario.replace(knowledge=knowledge)
    agent, simulator = small(scenario, horizon=12, **options), Simulator(scenario, 4, 7)
    everything, nearest = Observer(scenario, agent.features), Observer(scenario, agent.features, nearest=11)
    held, one, other, compared = np.ones(4, bool), None, None, 0
    for step in range(8):
        dense, listed, start = everything.observe(simulator), nearest.observe(simulator), np.full(4, step == 0)
        held &= (dense["mask"].sum(-1) <= 11).all(-1)
        expected, one = agent.plan(dense["pairs"], dense["mask"] != 0, one, start)
        found, other = agent.plan(listed["pairs"], listed["mask"] != 0, other, start, targets=listed["targets"])
        np.testing.assert_array_equal(found[held], expected[held])
        for name, of_all in arrays_of(one).items():
            if name != "place":
                np.testing.assert_array_equal(arrays_of(other)[name][held], of_all[held], err_msg=name)
        compared += held.sum()
        simulator.step(padded_actions(expected.argmax(-1), agent.decides, agent.scenario.decisions))
    assert compared >= 16


def test_lists_of_as_many_as_are_present_are_observations_of_all_and_others_hide_the_rest():
    agent = small(MANY)
    simulator = Simulator(MANY, 3, 0)
    dense, whole, listed = (Observer(MANY, agent.features, nearest=k).observe(simulator) for k in (None, 12, 2))
    (actions, state), (same, own) = agent.predict(dense), agent.predict(whole)
    np.testing.assert_array_equal(actions, same)
    np.testing.assert_equal(arrays_of(state), arrays_of(own))
    shown = np.zeros_like(dense["mask"])
    np.put_along_axis(shown, np.maximum(listed["targets"], 0), listed["mask"], -1)
    assert 0 < shown.sum() < dense["mask"].sum()
    _, state = agent.plan(listed["pairs"], listed["mask"] != 0, targets=listed["targets"])
    # With full knowledge, the others are absent.
    np.testing.assert_array_equal(state.beliefs.present[:, 0], shown.any(1))


# --- in use ---


def test_every_walk_knowledge_and_decision_can_be_played():
    rates = {"failure_rate": 0.1, "recovery_rate": 0.3, "leave_rate": 0.1, "return_rate": 0.3, "position_noise": 10.0}
    scenarios = [
        Scenario(walk=walk, wander=wander, **rates) for walk, wander in (("random", 0), ("bounce", 30), ("evade", 10))
    ]
    scenarios += [load_scenario(name).replace(**rates) for name in ("obstacles", "tilting", "hit-mac-2x14")]
    # A course has at least one move, or the future would never end, where a goal is near from everywhere.
    scenarios += [load_scenario("hit-mac").replace(goal_radius=5000.0)]
    zooming = {"zoom": (40, 100), "failure_rate": 0.1, "recovery_rate": 0.3, "leave_rate": 0.1}
    scenarios += [
        COURT.replace(**zooming),
        Scenario(**zooming, pan_limits=[(-90, 90)]),
        Scenario(**zooming, walk="evade"),
        load_scenario("basketball-4").replace(failure_rate=0.1, recovery_rate=0.3),
        Scenario(**MOTOR, acceleration=100, walk="evade", identities=False),
    ]
    for number, scenario in enumerate(scenarios):
        knowledge = KNOWLEDGE[number % len(KNOWLEDGE)]
        scenario = scenario.replace(knowledge=knowledge, message_delay=1, missed_detections=0.1)
        agent = small(scenario, horizon=12)
        failed = np.zeros((3, scenario.num_sensors), bool)
        for task, actions, _ in play(agent, scenario, 6, 3):
            assert task.action_space.contains(actions[0])
            assert not actions[:, : scenario.num_sensors][failed].any()
            failed = ~task.simulator.state.working


@pytest.mark.slow
def test_planners_cover_more_than_what_they_build_on():
    """Foresight beats greed, beliefs beat what is seen now, motion on rails and knowledge of motors and noise their
    lack."""
    whole = load_scenario("hit-mac")
    nearest, greedy, fast = (coverage(name, whole, 120, 40) for name in ("nearest", "greedy", "planner-fast"))
    assert nearest < greedy < fast
    assert fast > 0.8
    shared = whole.replace(knowledge="shared")
    names = ("greedy", "belief-planner", "belief-planner-fast", "belief-planner-fastest")
    memoryless, *believed = (coverage(name, shared, 100, 10) for name in names)
    assert min(believed) > memoryless + 0.1
    court = load_scenario("basketball-4")
    still = coverage("still", court, 40, 6)
    for knowledge in KNOWLEDGE:
        scene = court.replace(knowledge=knowledge)
        assert coverage(small(scene), scene, 40, 6) > still + 0.05
    slow, noisy = whole.replace(**MOTOR, acceleration=80), shared.replace(heading_noise=5)
    for name, scene, other in (("planner-fast", slow, whole), ("belief-planner-fast", noisy, shared)):
        knows, ignores = (scripted_agent(name, one) for one in (scene, other))
        assert coverage(knows, scene, 200, 24) > coverage(ignores, scene, 200, 24) + 0.02


# --- options ---


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"horizon": 0}, "horizon is 0; it must be a whole number, 1 to 10000"),
        ({"samples": 65}, "samples is 65; it must be a whole number, 1 to 64"),
        ({"samples": 1.5}, "samples is 1.5"),
        ({"restarts": -1}, "restarts is -1; it must be a whole number, 0 to 1000"),
        ({"rounds": 0}, "rounds is 0"),
        ({"turn_cost": -1}, "turn_cost is -1.0; it must be 0 or more"),
        ({"discount": 0}, "discount is 0.0; it must be over 0 and at most 1"),
        ({"per_length": -1}, "per_length is -1; it must be a whole number, 0 to 10000"),
        ({"particles": 5}, "particles is 5; it must be at least samples, 12"),
    ],
)
def test_options_out_of_range_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        PlannerAgent(ONE, **options)


def test_faster_planners_have_options_of_their_own_and_take_any():
    fast = load_agent("belief-planner-fast:turn_cost=2:particles=30", "hit-mac").policy
    assert (fast.turn_cost, fast.horizon, fast.samples) == (2.0, 40, 6)
    # The fastest has as many futures as share a word.
    of = {"hit-mac": 6, "volleyball-6": 5, "football-6": 2, "large": 2}
    assert {name: load_agent("belief-planner-fastest", name).policy.samples for name in of} == of
    assert load_agent("belief-planner-fastest:samples=3:per_length=5", "football-6").policy.samples == 3
    with pytest.raises(ValueError, match=r"radius is 40\.0"):
        load_agent("belief-planner:nearest=3:radius=40", "hit-mac")
