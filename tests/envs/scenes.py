"""Random scenarios for hypothesis: every way of placing, sensing and walking, mixed; recorded tracks; documentation."""

from hypothesis import strategies as st

from hitmac.envs import Scenario
from hitmac.envs.parts.walks import WALKS

UNNAMED = Scenario(
    name="unnamed", identities=False, knowledge="shared", position_noise=(20, 5), missed_detections=(0.1, 0.4),
    false_detections=0.3,
)  # fmt: skip
MOTORS = Scenario(
    name="motors", turn_rates=(5, 45), acceleration=200, command_delay=3, dead_zone=2, pan_limits=[(-150, 150)],
    failure_rate=0.05, recovery_rate=0.5,
)  # fmt: skip
BY_RATE = MOTORS.replace(name="by rate", action="rate", heading_noise=3)
RATES = st.sampled_from([0.0, 0.05, 0.5, 1.0])


@st.composite
def scenarios(draw, rails=True, tilts=True, both=False):
    """Draw a scenario, with rails and tilts at once only if `both`: kernels are compiled for every combination."""
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    arena = draw(st.sampled_from([1.0, 30.0, 1250.0]))
    place, height = st.floats(-arena, arena), draw(st.sampled_from([1.0, 0.8])) * arena
    points = st.lists(st.tuples(place, st.floats(-height, height)), min_size=1, max_size=3, unique=True)
    polylines = [st.lists(points, min_size=count, max_size=count) for count in (1, n) if rails]
    rails = draw(st.one_of(st.just([]), *polylines))
    tilting = tilts and (both or not rails)
    zoom, tilts = draw(st.sampled_from([(), (20, 120)])), draw(st.sampled_from([(), ((10, 70),)][: 1 + tilting]))
    opening = st.floats(20, 120) if zoom else st.floats(5, 360)
    view = draw(st.one_of(opening, st.lists(opening, min_size=n, max_size=n)))
    return Scenario(
        num_sensors=n,
        num_targets=m,
        min_sensors=draw(st.integers(0, n)),
        min_targets=draw(st.integers(0, m)),
        arena=arena if height == arena else (arena, height),
        whole_numbers=draw(st.booleans()),
        sensing_range=draw(st.floats(arena / 100, 3 * arena)),
        field_of_view=view,
        turn_angle=draw(st.lists(st.floats(0.1, 180), min_size=n, max_size=n)),
        zoom=zoom,
        tilt_limits=tilts,
        mount_height=draw(st.sampled_from([arena / 50, arena / 5])),
        failure_rate=draw(RATES),
        recovery_rate=draw(RATES),
        position_noise=draw(st.sampled_from([0.0, arena / 50])),
        missed_detections=draw(RATES),
        rails=[[*rail, *draw(st.sampled_from([[], rail[:1]]))] if len(rail) > 2 else rail for rail in rails],
        rail_step=draw(st.sampled_from([arena / 100, arena])),
        placement="rails" if rails else draw(st.sampled_from(["grid", "random"])),
        grid=3,
        spacing=draw(st.floats(0, arena / 3)),
        start_heading=draw(st.sampled_from(["random", "target"])),
        target_area=(-arena, arena, -arena / 2, arena / 2),
        walk=draw(
            st.sampled_from([walk for walk in WALKS if walk not in ("streets", "recorded") and "carry" not in walk])
        ),  # of cities, tracks
        wander=draw(st.floats(0, 180)),
        time_step=draw(st.sampled_from([0.13, 1.0])),
        min_speed=draw(st.floats(0, arena / 10)),
        max_speed=draw(st.floats(arena / 5, 3 * arena)),
        speed_noise=draw(st.floats(0, 1)),
        goal_radius=arena / 200,
        stuck_distance=draw(st.sampled_from([0.0, arena / 100])),
        extra_move_every=draw(st.sampled_from([0, 3, 10])),
        leave_rate=draw(RATES),
        return_rate=draw(RATES),
        discs=draw(st.lists(st.tuples(place, place, st.floats(arena / 50, arena / 4)), max_size=2)),
        random_discs=draw(st.integers(0, 2)),
        disc_radius=(arena / 50, arena / 5),
        walls=draw(st.lists(st.tuples(place, place, place, place), max_size=2)),
        distance_scale=2 * arena,
    )


def write_tracks(path, *rows, header="time,id,x,y"):
    """Write a file of recorded tracks; return its path."""
    path.write_text("\n".join((header, *rows)) + "\n")
    return str(path)


def assert_documented(name, function):
    """A function that scenarios choose by name has a sentence, which stands in the scenario's documentation."""
    line = function.__doc__.splitlines()[0]
    assert line.endswith(".")
    assert f"`{name}`: {line[0].lower()}{line[1:-1]}" in Scenario.__doc__
