"""Knowledge of the targets: what sensors see and what messages tell them, and nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.envs import FEATURES, Scenario, Simulator, load_scenario
from hitmac.envs.deployment import KNOWLEDGE
from hitmac.envs.observation import Observer
from hitmac.envs.tasks import CoordinatorTask
from tests.envs.scenes import scenarios

PARTIAL = KNOWLEDGE[1:]
HARD = Scenario(
    walk="bounce", wander=30, position_noise=20, missed_detections=0.2, failure_rate=0.05, recovery_rate=0.3,
    leave_rate=0.02, return_rate=0.1, zoom=(40, 120), discs=[(0, 0, 300)], communication_range=900, hops=2,
    message_loss_rate=0.2, message_delay=2,
)  # fmt: skip


def turns(scenario, steps, batch, seed=3):
    actions = scenario.num_sensors * len(scenario.decisions)
    return np.random.default_rng(seed).integers(0, 3, (steps, batch, actions))


class Reference:
    """What the sensors of one scene know, by the rules, from what they see."""

    def __init__(self, scenario):
        n, m = scenario.num_sensors, scenario.num_targets
        self.scenario, self.news = scenario, []
        self.age = np.full((n, m), np.inf)
        self.place, self.left = np.zeros((n, m, 2)), np.zeros((n, m), bool)

    def learn(self, state):
        scenario, n = self.scenario, len(self.age)
        working, seen, there = state.working[0], state.visible[0], state.present[0]
        self.left |= (self.age == 0) & ~there
        self.age += 1
        self.reports = seen.astype(int)
        for i, j in np.argwhere(seen):
            for k in range(n) if scenario.knowledge == "shared" else (i,):
                self.place[k, j], self.age[k, j], self.left[k, j] = state.target_position[0, j], 0, False
        if scenario.knowledge == "shared":
            self.reports[:] = seen.sum(0)
        self.news.append([(i, j, state.target_position[0, j].copy()) for i, j in np.argwhere(seen)])
        delay = scenario.message_delay
        if scenario.knowledge == "neighbours" and len(self.news) > delay:
            apart = np.linalg.norm(state.sensor_position[0][:, None] - state.sensor_position[0], axis=-1)
            link = (apart <= scenario.communication_range) & working[:, None]
            heard = np.eye(n, dtype=bool)
            for _ in range(scenario.hops):
                heard = heard | ((link.astype(int) @ heard.astype(int)) > 0)
            for i, j, place in self.news[-1 - delay]:
                for k in np.flatnonzero(heard[:, i]):
                    if k != i:
                        self.reports[k, j] += 1
                        if delay < self.age[k, j]:
                            self.place[k, j], self.age[k, j], self.left[k, j] = place, delay, False

    def check(self, simulator):
        known = simulator.known
        rows = slice(0, known.known_age.shape[1])
        np.testing.assert_array_equal(known.known_age[0], self.age[rows])
        np.testing.assert_array_equal(known.known_seeing[0], self.reports[rows])
        np.testing.assert_array_equal(known.known_left[0], self.left[rows])
        ever = np.isfinite(self.age[rows])
        np.testing.assert_array_equal(known.known_position[0][ever], self.place[rows][ever])


def checked(scenario, seed, steps):
    """A simulator after some steps, after each of which its knowledge is that of the reference."""
    simulator, reference = Simulator(scenario, 1, seed), Reference(scenario)
    for action in (None, *turns(scenario, steps, 1, seed)):
        if action is not None:
            simulator.step(action)
        reference.learn(simulator.state)
        reference.check(simulator)
    return simulator


@settings(deadline=None, max_examples=25)
@given(
    scenarios(tilts=False), st.sampled_from(PARTIAL), st.floats(0, 3), st.integers(1, 3), st.integers(0, 4),
    st.integers(0, 1000),
)  # fmt: skip
def test_sensors_know_what_they_see_and_are_told(scenario, knowledge, share, hops, delay, seed):
    options = {"communication_range": share * scenario.extent[0], "hops": hops, "message_delay": delay}
    checked(scenario.replace(knowledge=knowledge, position_noise=0, missed_detections=0, **options), seed, 12)


def test_many_sensors_report_too():
    options = {"knowledge": "neighbours", "communication_range": 60, "hops": 3, "message_delay": 1, "sensing_range": 60}
    simulator = checked(load_scenario("large-70x3").replace(**options), 0, 5)
    assert simulator.known.known_seeing.max() > 1


@pytest.mark.parametrize(
    ("scenario", "knowledge"),
    [("hit-mac", "own"), (HARD, "neighbours"), (HARD, "shared"), ("obstacles", "shared"), ("basketball-4", "own")],
)
def test_what_is_not_known_is_not_shown(scenario, knowledge):
    """Change all truth of targets that a sensor does not see: what it is shown stays the same, bit for bit."""
    scenario = load_scenario(scenario).replace(knowledge=knowledge)
    simulator, observer = Simulator(scenario, 30, 5), Observer(scenario, tuple(FEATURES))
    rng = np.random.default_rng(0)
    for action in turns(scenario, 25, 30):
        simulator.step(action)
        before, saved = observer.observe(simulator), simulator.get_state()
        for i in range(1 if knowledge == "shared" else scenario.num_sensors):
            state = simulator.state
            unseen = ~(state.covered if knowledge == "shared" else state.visible[:, i])
            state.target_position[unseen] = rng.uniform(-1, 1, (unseen.sum(), 2)) * scenario.extent
            for array in (state.velocity, state.goal, state.places, state.course, state.speed, state.present):
                array[unseen] = rng.integers(0, 2, array[unseen].shape)
            rows = slice(None) if knowledge == "shared" else i
            state.visible.swapaxes(1, 2)[unseen] ^= np.arange(scenario.num_sensors) != rows if rows == i else False
            after = observer.observe(simulator)
            for key, shown in before.items():
                np.testing.assert_array_equal(shown[:, rows], after[key][:, rows])
            simulator.set_state(saved)
    assert before["mask"].any()
    assert not before["mask"].all()


@pytest.mark.parametrize(
    ("scenario", "knowledge"), [("hit-mac", "own"), ("hit-mac", "shared"), (HARD, "neighbours"), (HARD, "shared")]
)
def test_what_is_seen_is_shown_as_with_full_knowledge(scenario, knowledge):
    scenario = load_scenario(scenario)
    features = tuple(name for name in FEATURES if name != "others_seeing")
    simulators = [Simulator(scenario.replace(knowledge=one), 20, 5) for one in ("full", knowledge)]
    observers = [Observer(simulator.scenario, features) for simulator in simulators]
    for action in turns(scenario, 20, 20):
        full, partial = (observer.observe(one) for one, observer in zip(simulators, observers, strict=True))
        seen = simulators[1].known.noticed
        if knowledge == "shared":  # of several sensors, the first measures for all
            seen = seen & (np.cumsum(seen, 1) == 1)
        assert partial["mask"][seen].all()
        error = 1e-6 if scenario.position_noise else 0.0
        np.testing.assert_allclose(full["pairs"][seen], partial["pairs"][seen], rtol=error, atol=error)
        for simulator in simulators:
            simulator.step(action)
    for name, array in simulators[0].get_state().items():  # the scenes are the same, and so are all their draws
        np.testing.assert_array_equal(array, simulators[1].get_state()[name], err_msg=name)


def test_messages_get_lost_at_their_rate():
    scenario = Scenario(num_sensors=2, num_targets=1, walk="still", knowledge="neighbours", communication_range=5000)
    told = {rate: np.empty((20, 500)) for rate in (0, 0.3, 1)}
    for rate in told:
        simulator = Simulator(scenario.replace(message_loss_rate=rate), 500, 0)
        simulator.place(sensor_position=[(0, 0), (0, 100)], heading=[0, 180], target_position=[(500, 0)])
        for step in range(20):
            simulator.step(np.zeros((500, 2), int))
            told[rate][step] = simulator.known.known_age[:, 1, 0] == 0
        assert (simulator.known.known_age[:, 0, 0] == 0).all()
    assert told[0].all()
    assert not told[1].any()
    assert told[0.3].mean() == pytest.approx(0.7, abs=0.02)
    assert abs(np.corrcoef(told[0.3][:-1].ravel(), told[0.3][1:].ravel())[0, 1]) < 0.04


def test_features_by_hand():
    scenario = Scenario(
        num_sensors=1, num_targets=2, knowledge="own", walk="bounce", speed_noise=0, extra_move_every=0, time_step=1,
    )  # fmt: skip
    simulator, observer = Simulator(scenario, 1, 0), Observer(scenario, tuple(FEATURES))
    simulator.place(sensor_position=[(250, -500)], heading=[40], target_position=[(650, -490), (-600, 0)])
    simulator.state.course[:], simulator.state.speed[:] = -0.5 * np.pi, 40  # straight down, out of view at the right

    def shown():
        observation = observer.observe(simulator)
        return dict(zip(FEATURES, observation["pairs"][0, 0].T, strict=True)), observation["mask"][0, 0]

    for _ in range(3):  # it is at -530 after one sub-step: 4 degrees below the x axis, 44 from the heading
        simulator.step(np.zeros((1, 1), int))
    values, mask = shown()
    assert mask.tolist() == [1, 0]
    bearing, radians = np.arctan2(-110, 400) - np.radians(40), np.radians(40)
    expected = {
        "age": 0.02, "seen_now": 0, "visible": 0, "spread": 2 * 100 / 2000, "distance": np.hypot(400, 30) / 2000,
        "tangential_velocity": -40 / 100 * 400 / np.hypot(400, 30), "expected_distance": np.hypot(400, 110) / 2000,
        "expected_sin": np.sin(bearing), "expected_cos": np.cos(bearing),
    }  # fmt: skip
    assert {name: values[name][0] for name in expected} == pytest.approx(expected, abs=1e-6)
    heading = {"heading_sin": np.sin(radians), "heading_cos": np.cos(radians)}
    of_sensor = {"sensor_x": 0.2, "sensor_y": -0.4, "field_of_view": 0.25, **heading}
    for j in range(2):  # also for the target that was never seen
        assert {name: values[name][j] for name in of_sensor} == pytest.approx(of_sensor)
    assert all(FEATURES[name].of_sensor for name, of_both in values.items() if of_both[1])
    simulator.reset()
    assert (shown()[0]["age"][shown()[1] == 1] == 0).all()


def test_targets_placed_at_the_start_were_never_elsewhere():
    simulator = Simulator(Scenario(num_sensors=1, num_targets=1, knowledge="own"), 1, 0)
    behind = {"sensor_position": [(0, 0)], "heading": [0], "target_position": [(-300, 0)]}
    simulator.reset(options={**behind, "target_position": [(300, 0)]})
    assert simulator.known.known_age.item() == 0
    simulator.place(**behind)
    assert simulator.known.known_age.item() == np.inf
    simulator.place(target_position=[(300, 0)])
    simulator.step(np.zeros((1, 1), int))
    simulator.place(**behind)
    assert simulator.known.known_age.item() == 1
    assert simulator.known.known_position[0, 0, 0, 0] > 0


def test_the_scripted_executor_turns_to_where_a_target_was_last_seen():
    scenario = Scenario(num_sensors=1, num_targets=1, walk="still", extra_move_every=0)
    own = scenario.replace(knowledge="own", placement="rails", rails=[[(0, 0)]])  # compiled for the courts anyway
    for scene, place in ((scenario, {"sensor_position": [(0, 0)]}), (own, {})):
        task = CoordinatorTask(scene, 1, 0, idle="hold")
        task.simulator.place(heading=[-30], target_position=[(300, 0)], **place)
        task.step(np.zeros((1, 1), int))
        task.simulator.place(heading=[-130], target_position=[(-300, -1)])  # out of view
        task.simulator.place(heading=[-110])
        for _ in range(3):
            task.step(np.ones((1, 1), int))
        assert (task.simulator.state.heading.item() < -110) == (scene is scenario)
