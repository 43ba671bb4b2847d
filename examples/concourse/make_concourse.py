"""Recorded tracks and the floor plan of the concourse in ``concourse.yaml``, by the pedestrian simulator JuPedSim.

``python -m examples.concourse.make_concourse`` writes both beside this file. It needs JuPedSim 1.4.2
(``pip install jupedsim==1.4.2``, LGPL), which nothing else here does; the seed of day k is [1, k]. People walk
between the street and the platforms, singly or in crowds that leave a train; some stop at a counter on the way.
"""

from collections.abc import Iterator
from pathlib import Path

import jupedsim
import numpy as np
import shapely
import tyro
import yaml

HERE = Path(__file__).parent
SCENE = HERE / "concourse.yaml"
DAYS = 8
SECONDS = 240
WARM_UP = 90  # seconds before a file begins, so that people are there already
STEPS = 20  # of the simulator in a second
PIXELS = 20  # to a metre

HALF_WIDTH, HALF_HEIGHT = 30.0, 15.0
STREET = ((-30.0, -5.0, -29.2, 3.0), (29.2, -9.0, 30.0, -2.0), (-14.0, -15.0, -9.0, -14.2), (10.0, -15.0, 15.0, -14.2))
PLATFORMS = ((-23.0, 14.2, -18.0, 15.0), (2.0, 14.2, 7.0, 15.0), (18.0, 14.2, 23.0, 15.0))  # x and y, low and high
COUNTERS = ((-12.0, 10.5), (1.0, -11.0), (15.0, 8.0), (-25.0, -9.0), (22.0, -11.5))


def arrivals(generator: np.random.Generator) -> Iterator[tuple[float, int, int]]:
    """Yield the time of each person, in no order, and the numbers of the entrances of arrival and departure."""
    street, platforms = len(STREET), len(PLATFORMS)
    rate, interval = generator.uniform(0.15, 0.20), generator.uniform(60, 80)  # people a second, seconds of a train
    for _ in range(generator.poisson(rate * (WARM_UP + SECONDS))):
        ways = street + generator.integers(platforms), generator.integers(street)
        yield generator.uniform(-WARM_UP, SECONDS), *(ways if generator.random() < 0.25 else ways[::-1])
    for train in np.arange(generator.uniform(-WARM_UP, interval - WARM_UP), SECONDS, interval):
        platform = street + generator.integers(platforms)
        for _ in range(generator.integers(4, 9)):
            yield train + generator.uniform(0, 15), platform, generator.integers(street)


def day(seed: int) -> list[str]:
    """Return the rows of a file: the positions of everybody at every second."""
    generator = np.random.default_rng([1, seed])
    columns = [shapely.Point(x, y).buffer(radius) for x, y, radius in yaml.safe_load(SCENE.read_text())["discs"]]
    hall = shapely.box(-HALF_WIDTH, -HALF_HEIGHT, HALF_WIDTH, HALF_HEIGHT).difference(shapely.union_all(columns))
    simulation = jupedsim.Simulation(model=jupedsim.CollisionFreeSpeedModel(), geometry=hall, dt=1 / STEPS)
    entrances = STREET + PLATFORMS
    exits = [simulation.add_exit_stage(shapely.box(*entrance)) for entrance in entrances]
    counters = [simulation.add_waypoint_stage(place, 1.5) for place in COUNTERS]
    journeys = {}
    for leave in exits:
        journeys[leave, leave] = simulation.add_journey(jupedsim.JourneyDescription([leave]))
        for counter in counters:
            way = jupedsim.JourneyDescription([counter, leave])
            way.set_transition_for_stage(counter, jupedsim.Transition.create_fixed_transition(leave))
            journeys[counter, leave] = simulation.add_journey(way)
    waiting, rows = sorted(arrivals(generator)), []
    speeds, stops = {}, {}  # metres a second, seconds at a counter; by person
    for step in range(-WARM_UP * STEPS, SECONDS * STEPS + 1):
        if step >= 0 and step % STEPS == 0:
            people = sorted((agent.id, *agent.position) for agent in simulation.agents())
            rows += [f"{step // STEPS},{number},{x:.2f},{y:.2f}" for number, x, y in people]
        for person in [one for one in waiting if one[0] * STEPS <= step]:
            x_low, y_low, x_high, y_high = entrances[person[1]]
            place = generator.uniform(x_low + 0.3, x_high - 0.3), generator.uniform(y_low + 0.3, y_high - 0.3)
            if list(simulation.agents_in_range(place, 0.6)):
                continue  # until there is room
            waiting.remove(person)
            leave, speed = exits[person[2]], generator.normal(1.25, 0.2)
            first = generator.choice(counters) if generator.random() < 0.3 else leave
            parameters = jupedsim.CollisionFreeSpeedModelAgentParameters(
                position=place, desired_speed=np.clip(speed, 0.7, 1.7), journey_id=journeys[first, leave],
                stage_id=first,
            )  # fmt: skip
            agent = simulation.add_agent(parameters)
            if first != leave:
                stops[agent] = generator.exponential(15.0)
        for number, rest in list(stops.items()):
            agent = simulation.agent(number)
            if agent.stage_id in counters:
                continue
            speeds.setdefault(number, agent.model.desired_speed)
            agent.model.desired_speed = 0.0 if rest > 0 else speeds[number]
            stops[number] = rest - 1 / STEPS
            if rest <= 0:
                del stops[number]
        simulation.iterate()
    return rows


def save_floor(path: Path) -> None:
    """Draw the floor plan: the arena from border to border, without a margin."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (round(2 * HALF_WIDTH * PIXELS), round(2 * HALF_HEIGHT * PIXELS)), (244, 244, 240))
    draw = ImageDraw.Draw(picture)

    def box(x_low: float, y_low: float, x_high: float, y_high: float) -> tuple[float, ...]:
        left, right = (x_low + HALF_WIDTH) * PIXELS, (x_high + HALF_WIDTH) * PIXELS
        return left, (HALF_HEIGHT - y_high) * PIXELS, right, (HALF_HEIGHT - y_low) * PIXELS

    for x in np.arange(-HALF_WIDTH, HALF_WIDTH, 5):
        for y in np.arange(-HALF_HEIGHT, HALF_HEIGHT, 5):
            draw.rectangle(box(x, y, x + 5, y + 5), outline=(230, 230, 226))
    for entrances, colour in ((STREET, (200, 170, 110)), (PLATFORMS, (120, 150, 190))):
        for entrance in entrances:
            draw.rectangle(box(*entrance), fill=colour)
    for x, y in COUNTERS:
        draw.rectangle(box(x - 0.5, y - 0.5, x + 0.5, y + 0.5), fill=(214, 208, 200))
    for x, y, radius in yaml.safe_load(SCENE.read_text())["discs"]:
        draw.ellipse(box(x - radius, y - radius, x + radius, y + radius), fill=(150, 146, 140))
    picture.quantize(32).save(path, optimize=True)


def main() -> None:
    """Write the tracks and the floor plan."""
    for number in range(1, DAYS + 1):
        path = HERE / "tracks" / f"day-{number}.csv"
        path.write_text("\n".join(("time,id,x,y", *day(number))) + "\n", encoding="utf-8")
        print(path)
    save_floor(HERE / "floor.png")
    print(HERE / "floor.png")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
