"""Observations of the nearest targets, neighbours of sensors, and large scenes, in which sensors look only nearby."""

import numpy as np
import pytest

from hitmac.envs import FEATURES, Scenario, Simulator, allocation, load_scenario
from hitmac.envs.observation import Observer
from tests.envs.kernels.neighbourhoods import nearest_of

ALL = tuple(FEATURES)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mixed", {"position_noise": 5.0, "missed_detections": 0.2, "failure_rate": 0.1, "recovery_rate": 0.5}),
        ("random", {"knowledge": "own", "leave_rate": 0.05, "return_rate": 0.2}),
        ("volleyball-4", {"knowledge": "shared"}),
    ],
)
def test_a_row_holds_the_nearest_targets_with_the_numbers_of_the_dense_row(name, changes):
    scenario = load_scenario(name).replace(**changes)
    simulator = Simulator(scenario, 3, 4)
    features = [one for one in FEATURES if not FEATURES[one].of_sensor]  # which are also shown in empty slots
    m, scale = scenario.num_targets, scenario.distance_scale
    rng = np.random.default_rng(0)
    for _ in range(4):
        simulator.step(rng.integers(0, 3, (3, scenario.num_sensors)))
        dense, known = Observer(scenario, features).observe(simulator), simulator.known
        place = simulator.state.target_position[:, None] if known is None else known.known_position
        distance = np.linalg.norm(place - simulator.state.sensor_position[:, :, None], axis=-1)  # (B, n, m)
        for nearest, radius in ((1, None), (4, None), (4, 0.3 * scale), (m + 3, 0.6 * scale)):
            observer = Observer(scenario, features, nearest=nearest, radius=radius, neighbours=3)
            shown = observer.observe(simulator)
            expected = nearest_of(dense["pairs"], dense["mask"], distance, nearest, radius or np.inf)
            for key, array in zip(("pairs", "mask", "targets"), expected, strict=True):
                np.testing.assert_array_equal(shown[key], array, err_msg=f"{key} {nearest} {radius}")
            assert observer.space.contains({key: array[0] for key, array in shown.items()})


def test_ties_go_to_the_lower_index_and_empty_slots_follow():
    scenario = Scenario(num_sensors=1, num_targets=5, walk="still", extra_move_every=0)
    simulator = Simulator(scenario, 1, 0)
    simulator.place(sensor_position=[(0, 0)], target_position=[(300, 0), (0, 200), (-200, 0), (200, 0), (0, -200)])
    assert Observer(scenario, nearest=3).observe(simulator)["targets"].tolist() == [[[1, 2, 3]]]
    for nearest, targets in ((3, [1, 2, 3]), (5, [-1, 1, 2, 3, 4])):
        shown = Observer(scenario, nearest=nearest, radius=200).observe(simulator)
        assert shown["targets"].tolist() == [[targets]]
    assert Observer(scenario, nearest=4, radius=199.9).observe(simulator)["mask"].tolist() == [[[0] * 4]]
    simulator.place(target_position=[(300, 0), (np.nan, np.nan), (-200, 0), (200, 0), (0, 900)])
    assert Observer(scenario, nearest=4, radius=400).observe(simulator)["targets"].tolist() == [[[0, 2, 3, -1]]]


EVERYTHING = {
    "zoom": (30, 120), "failure_rate": 0.1, "recovery_rate": 0.4, "leave_rate": 0.05, "return_rate": 0.3,
    "position_noise": 2.0, "missed_detections": 0.2, "random_discs": 5, "disc_radius": (10, 25), "discs": ((0, 0, 25),),
    "walls": ((-50, -50, 50, 50), (0, -80, 0, 80), (-100, 3, 100, 3)), "sensing_range": 60.0, "walk": "evade",
}  # fmt: skip
# All parts for which kernels are compiled separately, together.
ALL_KINDS = {
    "blocks": (2, 3), "street_width": 60.0, "walk": "streets", "pan_limits": ((-120, 90),),
    "knowledge": "neighbours", "communication_range": 900.0, "hops": 2, "message_delay": 1, "leave_rate": 0.05,
    "return_rate": 0.3, "failure_rate": 0.1, "recovery_rate": 0.4, "missed_detections": 0.2, "position_noise": 2.0,
}  # fmt: skip
LARGE = {
    "everything": load_scenario("large-12x20").replace(**EVERYTHING),
    "a crowd": load_scenario("large-3x90").replace(sensing_range=150, field_of_view=360),  # more are seen than listed
    "all kinds": load_scenario("volleyball-4").replace(**ALL_KINDS),
    "tilting": load_scenario("tilting").replace(num_targets=40),
    "shared": load_scenario("volleyball-4").replace(**ALL_KINDS).replace(knowledge="shared"),
}


def small_and_large(scenario, monkeypatch, scenes=3, threads=1):
    """The same scenes with a look at every target, and with a look at what is near."""
    monkeypatch.setattr(allocation, "GRID_FROM", np.inf)
    small = Simulator(scenario, scenes, 5, num_threads=1)
    monkeypatch.setattr(allocation, "GRID_FROM", 0)
    large = Simulator(scenario, scenes, 5, num_threads=threads)
    assert (small.large, large.large) == (False, True)
    return small, large


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("all kinds", "shared"))) for name in LARGE]
)
def test_a_look_at_what_is_near_changes_nothing(name, monkeypatch):
    scenario = LARGE[name]
    small, large = small_and_large(scenario, monkeypatch)
    observers = [Observer(scenario, ALL)]
    if scenario.knowledge == "full":
        observers.append(Observer(scenario, ALL, nearest=4, neighbours=2))
    rng = np.random.default_rng(0)
    decisions, seen = scenario.num_sensors * len(scenario.decisions), 0
    for step in range(30):
        action, mask = rng.integers(0, 3, (3, decisions)), rng.random(3) < 0.8
        for simulator in (small, large):
            simulator.step(action, mask)
            if step == 12:
                simulator.set_state(simulator.get_state())
            if step == 20:
                simulator.reset(mask=mask)
            if step == 25 and not scenario.rails and not scenario.leave_rate:
                simulator.place(target_position=np.zeros((scenario.num_targets, 2)))
        np.testing.assert_equal(large.get_state(), small.get_state())
        seen += small.state.visible.sum()
    assert seen > 0
    for observer in observers:
        np.testing.assert_equal(observer.observe(large), observer.observe(small))


def test_threads_share_the_sensors_of_a_scene(monkeypatch):
    scenario = load_scenario("large-90x200")
    small, large = small_and_large(scenario, monkeypatch, scenes=1, threads=2)
    assert large.num_threads == 2
    observer = Observer(scenario, nearest=5, neighbours=4)
    for _ in range(5):
        for simulator in (small, large):
            simulator.step(np.ones((1, 90), int))
        np.testing.assert_equal(large.get_state(), small.get_state())
        np.testing.assert_equal(observer.observe(large), observer.observe(small))
    np.testing.assert_equal(large.clone().get_state(), large.get_state())


def test_scenes_are_large_from_ten_thousand_pairs_on():
    assert not Simulator("large-99x101", 1, 0).large
    assert Simulator("large-100x100", 1, 0).large
