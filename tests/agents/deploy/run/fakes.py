"""Cameras, clocks and lines of a made-up site, in which no test waits, and detectors that send by UDP."""

import contextlib
import json
import socket
import threading
from itertools import islice

import numpy as np

from hitmac.agents import Agent
from hitmac.agents.deploy.run.log import Faults
from hitmac.agents.deploy.run.loop import Loop
from hitmac.agents.deploy.run.operation import Operation, Operations
from tests.agents.tracking.test_tracks import HALL

SITE = HALL.replace(
    placement="fixed", sensor_positions=[(-900, 0), (900, 0)], field_of_view=90, sensing_range=1500,
    pan_limits=[(-90, 90), (90, 270)], sensor_headings=[0, 180], turn_angle=5,
)  # fmt: skip
NAMES = ["west", "east"]
UNIX = 1.7e9


class Clock:
    """Clock of the monotonic kind, and the difference of the computer's clock to it."""

    def __init__(self):
        self.now, self.unix = 0.0, UNIX

    def monotonic(self):
        return self.now

    def wall(self):
        return self.now + self.unix


class Script:
    """Inbox with lines that arrive at set times of a clock, or calls that happen then; waiting advances the clock."""

    def __init__(self, clock, events):
        self.clock, self.dropped = clock, 0
        self.events = sorted(events, key=lambda event: event[0])

    def get(self, until):
        while self.events and self.events[0][0] <= until:
            then, line = self.events.pop(0)
            self.clock.now = max(self.clock.now, then)
            if not callable(line):
                return [(self.clock.now, line)]
            line()
        self.clock.now = max(self.clock.now, until)
        return []


class Fleet:
    """Cameras that remember their orders, and may turn by them."""

    def __init__(self, headings=(0.0, 180.0), turns=False):
        self.headings, self.turns, self.orders = np.array(headings), turns, []

    def order(self, rates):
        self.orders.append(rates.copy())
        self.headings = self.headings + self.turns * rates * SITE.time_step


class Turning:
    """Policy that turns every camera left, and remembers what it observes."""

    features = ("detections",)

    def __init__(self):
        self.seen = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.seen.append({name: array[0] for name, array in observation.items()})
        return np.ones(observation["mask"].shape[:2], np.int64), state


def scan(camera, time, places=((0.0, 0.0),)):
    """A line of detections at a time of the monotonic clock."""
    return json.dumps({"camera": camera, "time": UNIX + time, "detections": places}).encode()


def scans(*times, cameras=NAMES, late=0.05):
    """Lines of all cameras, which arrive a little after they were taken."""
    return [(time + late, scan(camera, time)) for time in times for camera in cameras]


def made(events, *, agent=None, hands=None, fleet=None, site=SITE, **options):
    """A loop, its clock and its policy."""
    clock, policy = Clock(), Turning()
    agent = agent or Agent("turning", policy, policy.features)
    faults = Faults(quiet=2.0, clock=clock.monotonic)
    clocks = {"monotonic": clock.monotonic, "wall": clock.wall}
    site = site.replace(sensor_names=NAMES)
    options = {"views": [None] * 2, "operations": Operations([Operation()] * 2, site)} | options
    loop = Loop(agent, site, fleet or Fleet(), Script(clock, events), faults, hands=hands, **options, **clocks)
    return loop, clock, policy


def played(loop, number):
    """The frames of some steps."""
    return list(islice(loop.steps(), number))


def free_address():
    """An address of UDP at which nothing listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()


@contextlib.contextmanager
def detecting(*datagrams):
    """A detector that sends datagrams again and again, to the address of the context."""
    address, ended = free_address(), threading.Event()

    def detect():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not ended.wait(0.02):
                for one in datagrams:
                    sender.sendto(one, address)

    detector = threading.Thread(target=detect)
    detector.start()
    try:
        yield address
    finally:
        ended.set()
        detector.join()
