"""What operators set: moves an hour, rest, return from being steered by hand; and the file that holds it."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.agents import Agent, load_agent
from hitmac.agents.deploy.run.operation import PARTS, PATIENCE, PRICE, Budget, Operation, Operations, load_operations
from tests.agents.deploy.run.fakes import SITE, Fleet, Turning, made, played, scan, scans
from tests.agents.deploy.run.test_cameras import PtzRig, Rig
from tests.agents.deploy.run.test_loop import EVERY, PtzFleet

NAMED = SITE.replace(sensor_names=["west", "east"])


def moves_of(orders):
    """The numbers of orders that begin to turn, or turn the other way than last in the same move, by hand."""
    found, before = [], ()
    for k, order in enumerate(orders):
        now = tuple(np.sign(order))
        before = before or (0,) * len(now)
        if any(now) and (not any(before) or any(a * b < 0 for a, b in zip(now, before, strict=True))):
            found.append(k)
        before = tuple(a or b for a, b in zip(now, before, strict=True)) if any(now) else (0,) * len(now)
    return found


@settings(deadline=None, max_examples=200)
@given(
    most=st.integers(0, 20),
    orders=st.lists(
        st.tuples(st.sampled_from((0.0, 0.25, 60.0, 700.0, 3600.0)), st.sampled_from((-5.0, 0.0, 5.0)),
                  st.sampled_from((-5.0, 0.0, 5.0))),
        max_size=150,
    ),
)  # fmt: skip
def test_a_budget_is_kept_over_every_hour(most, orders):
    budget, now, times, sent = Budget(most), 0.0, [], []
    for wait, *rates in orders:
        now += wait
        times.append(now)
        sent.append(rates if budget.passes(now, rates) else [0.0, 0.0])
    begun = np.array([times[k] for k in moves_of(sent)])
    assert all(((begun >= start) & (begun <= start + 3600.0)).sum() <= most for start in begun)
    assert budget.number(now) == (now - begun <= 3600.0).sum()
    assert most or not len(begun)


def test_a_pan_that_reverses_while_the_camera_tilts_begins_a_move():
    budget = Budget(600)
    for k, order in enumerate([(5, 0), (0, 5), (-5, 0), (0, 5), (5, 0)]):
        budget.passes(60.0 * k, order)
        assert budget.passes(60.0 * k + 30.0, order)  # a move must be wanted for a while
    assert budget.number(300.0) == 3


def test_moves_are_spread_over_the_hour_and_a_move_that_has_begun_goes_on():
    budget = Budget(12)
    passed = [budget.passes(t, [1.0 * (t % 40 < 20), 0.0]) and t % 40 < 20 for t in range(3600)]
    begun = np.flatnonzero(np.diff(passed, prepend=False) & passed)
    assert np.histogram(begun, 6, (0, 3600))[0].tolist() == [2] * 6
    assert budget.number(3600) == 12
    budget = Budget(1)
    assert all(budget.passes(t, [1.0, 0.0]) for t in range(100))
    assert budget.passes(100, [1.0, 2.0])
    assert not budget.passes(101, [-1.0, 0.0])
    assert Budget().used(0.0) == 0.0


@pytest.mark.parametrize(("asked", "times"), [([1.0, 0.0], 0), ([1.0, -1.0], 0), ([1.0, 1.0], 1)])
def test_the_fewer_moves_are_left_the_longer_one_must_be_wanted(asked, times):
    budget = Budget(2 * PARTS)
    assert budget.passes(0.0, [1.0, 0.0])
    assert budget.passes(0.1, [0.0, 0.0])
    passed = [budget.passes(t, [asked[k % 2], 0.0]) for k, t in enumerate(np.arange(1.0, 20.0, 0.25))]
    assert budget.number(20.0) == 1 + times
    if times:
        assert passed.index(True) == pytest.approx(PATIENCE * 0.5 / 0.25)


class Dithering(Turning):
    """Policy that turns every camera to and fro."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        super().predict(observation)
        return np.full((1, 2), 1 + len(self.seen) % 2), state


def operated(*settings, fleet=None, events=None, policy=None, site=SITE, **others):
    """A loop of two cameras, each with settings of its operation."""
    policy = policy or Dithering()
    operations = Operations([Operation(**one) for one in settings], site, policy)
    agent, events = Agent("own", policy, policy.features), scans(*EVERY) if events is None else events
    return made(events, agent=agent, fleet=fleet or Fleet(turns=True), operations=operations, site=site, **others)[0]


def test_the_agent_of_a_camera_with_a_budget_begins_only_so_many_moves():
    loop = operated({"moves_an_hour": 8}, {})
    frames = played(loop, 100)
    west, east = np.array([frame["orders"] for frame in frames]).T
    assert len(moves_of(west[:, None])) == 1  # the next one must be wanted for longer
    assert len(moves_of(east[:, None])) == 100
    assert frames[-1]["moves"] == [1, 100]
    assert [sum(i in frame["begun"] for frame in frames) for i in (0, 1)] == [1, 100]


def test_planners_pay_more_for_turns_the_fewer_moves_are_left():
    agent = load_agent("belief-planner-fastest", SITE)
    operations = Operations([Operation(moves_an_hour=4), Operation()], SITE, agent.policy)
    search = agent.policy._problem.search
    operations.budgets[0].passes(0.0, [1.0, 0.0])
    operations.price(0.0)
    assert agent.policy._problem.search.turn_cost == pytest.approx(PRICE * search.turn_cost)
    operations.price(601.0)
    assert agent.policy._problem.search.turn_cost == pytest.approx(PRICE**0.25 * search.turn_cost)
    Operations([Operation(moves_an_hour=4)] * 2, SITE, Turning()).price(0.0)


def test_a_camera_rests_until_something_is_in_its_reach():
    """The other one rests later, since it sees the last target of both."""
    site = SITE.replace(sensing_range=800)  # of cameras 1800 apart
    quiet = [event for event in scans(*EVERY) if event[0] < 1.0 or event[0] > 16.0]
    empty = [(time + 0.05, scan(name, time, [])) for time in EVERY for name in ("west", "east") if 1.0 <= time <= 16.0]
    there = [(time + 0.05, scan("east", time, [[850.0, 0.0]])) for time in EVERY if 8.0 <= time <= 9.0]
    quiet = [(time, line.replace(b"[[0.0, 0.0]]", b"[[-600.0, 0.0]]")) for time, line in quiet]
    empty = [event for event in empty if not (b"east" in event[1] and 8.0 < event[0] < 9.1)]
    rest = {"rest_after": 5, "rest_heading": -60}, {"rest_after": 5, "rest_heading": 200}
    fleet = Fleet(turns=True)
    frames = played(operated(*rest, fleet=fleet, events=sorted([*quiet, *empty, *there]), site=site), 90)
    when = np.array([frame["time"] for frame in frames]) - frames[0]["time"]
    west, east = np.array([[i in frame["rests"] for i in range(2)] for frame in frames]).T
    np.testing.assert_allclose((when[west][0], when[west][-1]), (5.9, 16.0), atol=0.5)
    assert (np.diff(west.astype(int)) != 0).sum() == 2
    assert not east[(when > 8.4) & (when < 13.0)].any()
    assert east[(when > 5.7) & (when < 7.8)].all()
    last = frames[int(np.flatnonzero(west)[-1])]
    assert last["heading"][0] == pytest.approx(-60.0, abs=1.0)
    assert last["orders"][0] == 0.0
    assert frames[-1]["orders"][0] != 0.0


def test_a_camera_also_tilts_and_zooms_to_its_rest():
    site = SITE.replace(tilt_limits=[(10, 80)], mount_height=100, vertical_view=60, zoom=(30, 120))
    fleet = PtzFleet()
    rest = {"rest_after": 0.1, "rest_tilt": 30, "rest_view": 100}
    played(operated(rest, {}, fleet=fleet, events=[], site=site, policy=Dithering()), 5)
    rates, tilts, views = fleet.orders[-1].reshape(3, 2)
    assert (rates[0], views[0]) == (0.0, 100.0)
    assert tilts[0] == pytest.approx(-25.0)  # limited to the rate of turns
    assert math.isnan(views[1])


class Touched(Fleet):
    """Cameras of which the first was moved by its joystick at some time."""

    clock, at = None, math.inf

    @property
    def untouched(self):
        since = self.clock.monotonic() - self.at
        return np.array([since if since >= 0 else math.inf, math.inf])


def test_a_joystick_holds_the_agent_for_some_seconds():
    fleet = Touched(turns=True)
    loop = operated({"manual_return": 3}, {}, fleet=fleet)
    fleet.clock, fleet.at = loop.inbox.clock, 2.0
    frames = played(loop, 50)
    when = np.array([frame["time"] for frame in frames]) - 1.7e9
    held = np.array([frame["by_hand"] == [0] for frame in frames])
    np.testing.assert_allclose((when[held][0], when[held][-1]), (2.0, 5.0), atol=0.3)
    assert all(frame["orders"][0] == 0.0 for frame in np.array(frames)[held])
    assert all(frame["orders"][1] != 0.0 for frame in frames)
    left = [frame["left"][0] for frame in np.array(frames)[held]]
    assert left == pytest.approx(5.0 - when[held], abs=0.1)


def test_the_page_steers_a_camera_over_its_budget_and_rest():
    hands = SimpleNamespace(paused=False, by_hand={0: 7.5}, left={0: 12.0})
    loop = operated({"moves_an_hour": 0, "rest_after": 0.1, "rest_heading": 0, "manual_return": 30}, {}, hands=hands,
                    events=[], fleet=Touched())  # fmt: skip
    loop.cameras.clock = loop.inbox.clock
    frames = played(loop, 4)
    assert [frame["orders"][0] for frame in frames] == [7.5] * 4
    assert (frames[-1]["left"], frames[-1]["rests"], frames[-1]["moves"][0]) == ([12.0], [], 0)


@pytest.mark.parametrize("rig", [Rig, PtzRig])
def test_a_camera_that_moves_without_an_order_was_moved_by_someone(rig):
    rig = rig()
    axis = rig.supervisor.axes[-1]
    motor = rig.tilt if len(rig.supervisor.axes) > 1 else rig.motor
    rig.run(1.0)
    for _ in range(10):
        rig.supervisor.order(20.0, 1.5)
        rig.run(0.1)
    rig.run(3.0, rate=0.0)
    assert axis.moved == -math.inf  # by orders only
    for _ in range(20):
        motor.place += 0.9  # as by a joystick
        rig.run(0.1, rate=0.0)
    assert rig.clock.time - axis.moved < 0.5
    before = axis.moved
    rig.run(5.0, rate=0.0)
    assert axis.moved == before
    assert not rig.said


# Cameras without a motor


@pytest.mark.parametrize("name", ["random", "nearest", "belief-planner-fastest"])
def test_a_camera_without_a_motor_sees_and_does_not_turn(name):
    site = SITE.replace(pan_limits=[(0, 0), (90, 270)])
    walking = [
        (time + 0.05, scan(one, time, [[-400.0 + 50.0 * time, 0.0]])) for time in EVERY for one in ("west", "east")
    ]
    loop, _, _ = made(walking, agent=load_agent(name, site), site=site, fleet=Fleet([0.0, 250.0], turns=True))
    frames = played(loop, 30)
    assert {frame["orders"][0] for frame in frames} == {0.0} or name == "random"  # which its supervisor holds
    if name == "belief-planner-fastest":
        assert frames[-1]["covered"] > 0.9
        assert any(frame["orders"][1] for frame in frames)


def test_no_order_turns_a_camera_without_a_motor():
    rig = Rig(limits=(10.0, 10.0))
    rig.motor.place = 10.0
    rig.run(5.0, rate=20.0)
    rig.run(5.0, rate=-20.0)
    assert set(rig.motor.orders) == {0.0}
    assert not rig.said


# Settings


def written(folder, text):
    path = folder / "cameras.yaml"
    path.write_text(f"west: {{driver: simulated, operation: {text}}}\neast: {{driver: simulated}}\n")
    return path


def test_a_file_has_the_settings_of_each_camera(tmp_path):
    night = "{moves_an_hour: 30, private: [{zone: [[0, 0], [9, 0], [9, 9]], hours: 22:00-06:00, days: [sat, sun]}]}"
    west, east = load_operations(written(tmp_path, night), NAMED)
    assert (west.moves_an_hour, west.private[0].hours, west.private[0].days) == (30, "22:00-06:00", ("sat", "sun"))
    assert east == Operation()
    assert load_operations("simulated", NAMED) == [Operation()] * 2
    operations = Operations([west, west], NAMED)
    assert operations.zones == [[[0.0, 0.0], [9.0, 0.0], [9.0, 9.0]]]
    assert all(operations.privacy())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3", "operation is 3; it must be settings"),
        ("{moves_an_hour: -1}", "moves_an_hour is -1; it must be 0 or more"),
        ("{moves_an_hour: many}", "moves_an_hour is 'many'; it must be a whole number, 0 or more"),
        ("{moves: 3}", "unknown setting moves of operation: known are moves_an_hour"),
        ("{rest_after: 5}", "rest_after is 5; it requires rest_heading, rest_tilt or rest_view"),
        ("{rest_after: 5, rest_heading: 180}", "rest_heading is 180; it must be within the site's, -90 to 90"),
        ("{rest_after: 5, rest_tilt: 20}", "rest_tilt is 20; it must be left out, as the site's are"),
        ("{private: 4}", "private is 4; it must be a list of zones"),
        ("{private: [4]}", "zone 1 of private: it is 4; it must have zone"),
        ("{private: [{zone: [], from: 3}]}", "zone 1 of private: unknown setting from"),
    ],
)
def test_wrong_settings_are_named_with_their_file_and_camera(text, words, tmp_path):
    with pytest.raises((ValueError, TypeError), match=rf"cameras\.yaml: camera west: .*{words}"):
        load_operations(written(tmp_path, text), NAMED)
