"""Recorded tracks and the floor plan of the site in ``site.yaml``.

``python -m examples.site.make_site`` writes both beside this file. People come in by a door, walk past the walls to one
to three places, stay there for a while and leave by a door. More of them come in waves. A real site has its own files
instead: a tracker's positions, and a picture of the whole arena.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro

from hitmac.envs import Scenario, load_scenario

HERE = Path(__file__).parent
SCENE = HERE / "site.yaml"
DAYS = 8
SECONDS = 240
WARM_UP = 120  # seconds before a file begins, so that people are there already
CLEARANCE = 0.5  # metres between a route and the walls
PIXELS = 20  # to a metre

DOORS = np.array([(-21.0, -4.0), (-1.0, -12.0), (21.0, 3.0), (3.0, 12.0)])
PLACES = np.array(
    [
        (-18, 9), (-13, 7), (-15, 10.5), (-8, 10), (-15, 0), (-9, -9), (-17, -10), (0, 5), (0, -4), (7, 0), (11, -9),
        (18, -10), (13, -7.5), (15, 9), (18, 6), (12, 2), (7, 9.5), (-7, 1),
    ],
    float,
)  # fmt: skip
CORNERS = np.array(
    [(-5, -3), (5, -3), (5, 4), (-5, 4), (-9, 4), (-9, 7), (-9, 0), (7, -4), (17, -3.5), (17, -6.5), (11, 5), (9, 4)],
    float,
)  # where routes turn


class Person(NamedTuple):
    """Way of one person: at ``time[k]`` (seconds) at ``place[k]``, and on straight lines between."""

    time: np.ndarray  # (K,)
    place: np.ndarray  # (K, 2)


def distances_to_walls(points: np.ndarray, walls: np.ndarray) -> np.ndarray:
    """Return the distance (p,) of points (p, 2) to the nearest of walls (w, 4)."""
    start, run = walls[:, :2], walls[:, 2:] - walls[:, :2]
    along = ((points[:, None] - start) * run).sum(-1) / (run**2).sum(-1)
    nearest = start + np.clip(along, 0, 1)[..., None] * run
    return np.hypot(*np.moveaxis(points[:, None] - nearest, -1, 0)).min(1)


def shortest_ways(nodes: np.ndarray, walls: np.ndarray) -> np.ndarray:
    """Return the next node (k, k) on the shortest way from each node to each other, clear of the walls."""
    count = len(nodes)
    cost = np.full((count, count), np.inf)
    for a in range(count):
        for b in range(count):
            line = nodes[a] + np.linspace(0, 1, 100)[:, None] * (nodes[b] - nodes[a])
            if distances_to_walls(line, walls).min() >= CLEARANCE:
                cost[a, b] = math.dist(nodes[a], nodes[b])
    following = np.where(np.isfinite(cost), np.arange(count), -1)
    for via in range(count):
        through = cost[:, via, None] + cost[via]
        shorter = through < cost - 1e-9
        cost, following = np.where(shorter, through, cost), np.where(shorter, following[:, via, None], following)
    if (following < 0).any():
        raise ValueError("there is no way between some of the doors and places")
    return following


def person(start: float, nodes: np.ndarray, following: np.ndarray, generator: np.random.Generator) -> Person:
    """Draw the way of a person who comes in at `start`: a door, one to three places, a door."""
    doors, places = np.arange(len(DOORS)), len(DOORS) + np.arange(len(PLACES))
    visits = generator.choice(places, generator.integers(1, 4), replace=False)
    stops = [generator.choice(doors), *visits, generator.choice(doors)]
    speed = generator.uniform(0.8, 1.6)
    times, points = [start], [nodes[stops[0]]]
    for stop in stops[1:]:
        node = stops[0]
        while node != stop:
            node = following[node, stop]
            point = nodes[node] + (0 if node < len(DOORS) else generator.uniform(-0.3, 0.3, 2))
            times.append(times[-1] + math.dist(points[-1], point) / speed)
            points.append(point)
        stops[0] = stop
        if stop in places:
            times.append(times[-1] + generator.exponential(15.0))
            points.append(points[-1])
    return Person(np.array(times), np.array(points))


def day(seed: int, scenario: Scenario) -> list[str]:
    """Return the rows of a file: the positions of everybody at every second."""
    generator = np.random.default_rng(seed)
    nodes = np.concatenate((DOORS, PLACES, CORNERS))
    following = shortest_ways(nodes, np.array(scenario.walls))
    rate, wave = generator.uniform(0.035, 0.06), generator.uniform(0, SECONDS)  # arrivals a second, and their peak
    rows, number, now = [], 0, -float(WARM_UP)
    while now < SECONDS:
        now += generator.exponential(1 / (2 * rate))
        if generator.random() > 0.5 + 0.5 * math.cos(2 * math.pi * (now - wave) / SECONDS):
            continue  # thinned, so that arrivals come in waves
        one, number = person(now, nodes, following, generator), number + 1
        seconds = np.arange(max(0, math.ceil(one.time[0])), min(SECONDS, math.floor(one.time[-1])) + 1)
        x, y = (np.interp(seconds, one.time, one.place[:, axis]) for axis in range(2))
        rows += [(t, number, f"{t},{number},{a:.2f},{b:.2f}") for t, a, b in zip(seconds, x, y, strict=True)]
    return [text for *_, text in sorted(rows)]


def save_floor(path: Path, scenario: Scenario) -> None:
    """Draw the floor plan: the arena from border to border, without a margin."""
    from PIL import Image, ImageDraw, ImageFont

    half_width, half_height = scenario.extent
    picture = Image.new("RGB", (round(2 * half_width * PIXELS), round(2 * half_height * PIXELS)), (246, 243, 236))
    draw = ImageDraw.Draw(picture)

    def at(x: float, y: float) -> tuple[float, float]:
        return (x + half_width) * PIXELS, (half_height - y) * PIXELS

    for (left, low, right, high), colour, name in (
        ((-21, 4, -10, 12), (226, 234, 222), "gallery"),
        ((8, -12, 21, -5), (236, 226, 214), "store"),
        ((11, 6, 21, 12), (222, 230, 238), "lounge"),
        ((-4, -2, 4, 3), (214, 208, 200), "shop"),
    ):
        draw.rectangle((*at(left, high), *at(right, low)), fill=colour)
        draw.text(at((left + right) / 2, (low + high) / 2), name, (150, 145, 138), ImageFont.load_default(26), "mm")
    for metre in range(-20, 21, 5):
        draw.line((*at(metre, half_height), *at(metre, -half_height)), fill=(232, 228, 220))
    for x1, y1, x2, y2 in scenario.walls:
        draw.line((*at(x1, y1), *at(x2, y2)), fill=(112, 106, 98), width=8)
    for x, y in DOORS:
        across = (0.2, 1.2) if abs(x) == half_width else (1.2, 0.2)
        low, high = at(x - across[0], y + across[1]), at(x + across[0], y - across[1])
        draw.rectangle((*low, *high), fill=(200, 170, 110))
    picture.quantize(32).save(path, optimize=True)


def main() -> None:
    """Write the tracks and the floor plan."""
    scenario = load_scenario(SCENE)
    for number in range(1, DAYS + 1):
        path = HERE / "tracks" / f"day-{number}.csv"
        path.write_text("\n".join(("time,id,x,y", *day(number, scenario))) + "\n", encoding="utf-8")
        print(path)
    save_floor(HERE / "floor.png", scenario)
    print(HERE / "floor.png")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
