"""Large scenes: sensors look only at what is near, and several threads share the sensors of one scene."""

import numpy as np
import pytest

from hitmac.envs import FEATURES, Simulator, load_scenario
from hitmac.envs import allocation as memory
from hitmac.envs.kernels.nearest import make_cells, sort_walls
from hitmac.envs.observation import Observer

EVERYTHING = {
    "zoom": (30, 120), "failure_rate": 0.1, "recovery_rate": 0.4, "leave_rate": 0.05, "return_rate": 0.3,
    "position_noise": 2.0, "missed_detections": 0.2, "random_discs": 5, "disc_radius": (3, 12), "discs": ((0, 0, 9),),
    "walls": ((-50, -50, 50, 50), (0, -80, 0, 80), (-100, 3, 100, 3)), "sensing_range": 60.0, "walk": "evade",
}  # fmt: skip
# All for which kernels are compiled apart, at once.
ALL_KINDS = {
    "blocks": (2, 3), "street_width": 60.0, "walk": "streets", "pan_limits": ((-120, 90),),
    "knowledge": "neighbours", "communication_range": 900.0, "hops": 2, "message_delay": 1, "leave_rate": 0.05,
    "return_rate": 0.3, "failure_rate": 0.1, "recovery_rate": 0.4, "missed_detections": 0.2, "position_noise": 2.0,
}  # fmt: skip
SCENES = {
    "bounce": load_scenario("large-12x20"),
    "goals": load_scenario("hit-mac-6x9"),
    "mixed": load_scenario("mixed"),
    "everything": load_scenario("large-12x20").replace(**EVERYTHING),
    "a crowd": load_scenario("large-3x90").replace(sensing_range=150, field_of_view=360),  # more are seen than listed
    "all kinds": load_scenario("volleyball-4").replace(**ALL_KINDS),
    "shared": load_scenario("volleyball-4").replace(**ALL_KINDS).replace(knowledge="shared"),
}


def spread_out(num_sensors, num_targets):
    """The preset `large` with other sizes, as dense."""
    half = 100 * (num_sensors / 50) ** 0.5
    area = (-half, half, -half, half)
    return load_scenario("large").replace(
        num_sensors=num_sensors, num_targets=num_targets, arena=half, target_area=area, grid=int(half / 5)
    )


def pair(scenario, monkeypatch, scenes=3, threads=1):
    """The same scenes with a look at everything, and with a look at what is near."""
    monkeypatch.setattr(memory, "GRID_FROM", np.inf)
    small = Simulator(scenario, scenes, 5, num_threads=1)
    monkeypatch.setattr(memory, "GRID_FROM", 0)
    large = Simulator(scenario, scenes, 5, num_threads=threads)
    assert large.large
    assert not small.large
    return small, large


def assert_same(one, other):
    of_other = other.get_state()
    for name, array in one.get_state().items():
        np.testing.assert_array_equal(array, of_other[name], err_msg=name)


COMPILED_APART = ("all kinds", "shared")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in COMPILED_APART)) for name in SCENES]
)
def test_a_look_at_what_is_near_changes_nothing(name, monkeypatch):
    scenario = SCENES[name]
    small, large = pair(scenario, monkeypatch)
    assert_same(small, large)
    observer = Observer(scenario, tuple(FEATURES))
    rng = np.random.default_rng(0)
    decisions, seen = scenario.num_sensors * len(scenario.decisions), 0
    for step in range(30):
        action = rng.integers(0, 3, (3, decisions))
        mask = rng.random(3) < 0.8
        for simulator in (small, large):
            simulator.step(action, mask)
            if step == 12:
                simulator.set_state(simulator.get_state())
            if step == 20:
                simulator.reset(mask=mask)
            if step == 25 and not scenario.rails and not scenario.leave_rate:
                simulator.place(target_position=np.zeros((scenario.num_targets, 2)))
        assert_same(small, large)
        seen += small.state.visible.sum()
    assert seen > 0
    for key, array in observer.observe(small).items():
        np.testing.assert_array_equal(array, observer.observe(large)[key])
    if scenario.knowledge == "full":
        near = Observer(scenario, tuple(FEATURES), nearest=4, neighbours=2)
        for key, array in near.observe(small).items():
            np.testing.assert_array_equal(array, near.observe(large)[key])


def test_threads_share_the_sensors_of_a_scene(monkeypatch):
    scenario = spread_out(300, 200)
    small, large = pair(scenario, monkeypatch, scenes=1, threads=2)
    assert large.num_threads == 2
    observer = Observer(scenario, nearest=5, neighbours=4)
    for _ in range(5):
        for simulator in (small, large):
            simulator.step(np.ones((1, 300), int))
        assert_same(small, large)
        alone, shared = observer.observe(small), observer.observe(large)
        for key, array in alone.items():
            np.testing.assert_array_equal(array, shared[key])
    assert_same(large.clone(), large)


def test_scenes_are_large_from_many_pairs_on():
    assert not Simulator("large-99x101", 1, 0).large
    assert Simulator("large-100x100", 1, 0).large


def test_walls_are_found_in_every_cell_that_they_touch():
    scenario = load_scenario("large")
    cells = make_cells(scenario, 200)  # 10 x 10
    assert (cells.columns, cells.rows, cells.width, cells.height) == (10, 10, 20.0, 20.0)
    start, number = sort_walls(cells, np.array([[-95, -95, -25, -95], [-50, -50, -50, 30], [90, 90, 100, 100]]))
    found = {c: number[start[c] : start[c + 1]].tolist() for c in range(100) if start[c + 1] > start[c]}
    assert found == {0: [0], 1: [0], 2: [0], 3: [0], 22: [1], 32: [1], 42: [1], 52: [1], 62: [1], 99: [2]}


def test_a_scene_of_many_thousands_is_made_and_advances():
    scenario = spread_out(2500, 2500)
    simulator = Simulator(scenario, 1, 0)
    observer = Observer(scenario, nearest=8, neighbours=8)
    simulator.step(np.zeros((1, 2500), int))
    shown = {key: array[0] for key, array in observer.observe(simulator).items()}
    assert observer.space.contains(shown)
    assert shown["mask"].all()
    assert 0 < simulator.coverage[0] < 1
