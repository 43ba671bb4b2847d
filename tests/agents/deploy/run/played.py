"""Loop of real cameras on a played clock, in one process: what it finds does not depend on the load of the machine."""

import time
from collections import deque
from unittest.mock import patch

import numpy as np
import yaml

from hitmac.agents.deploy.run.cameras import Cameras
from hitmac.agents.deploy.run.command import running
from hitmac.agents.deploy.run.drivers import Visca
from hitmac.agents.deploy.run.log import Faults
from hitmac.agents.deploy.run.loop import Loop
from hitmac.agents.deploy.run.operation import Operations, load_operations
from hitmac.agents.deploy.run.pictures import load_views
from hitmac.agents.names import named_agent
from hitmac.envs import load_scenario
from tests.agents.deploy.run.camera_servers import ViscaServer
from tests.agents.deploy.run.world import World

TICK, START = 0.01, 1.7e9  # seconds: between two looks at the cameras, the computer's clock at the start


class Wireless(Visca):
    """Camera of VISCA whose messages reach its server without a wire."""

    def _ask(self, kind, message):
        if self.server.fault == "silent" or self.server.loses():
            raise TimeoutError("no answer")
        self._check(answer := ViscaServer._reply(self.server, message))
        return answer


class PlayedCameras(Cameras):
    """Cameras that :meth:`go` supervises in place of threads."""

    def __init__(self, drivers, scenario, tell, clock):
        with patch("threading.Thread.start"):
            super().__init__(drivers, scenario, tell, timeout=max(3.0 * scenario.time_step, 0.5), clock=clock)
        self._due = [0.0] * len(drivers)

    def go(self):
        for i, one in enumerate(self._all):
            if one.wake.is_set() or self._clock() >= self._due[i]:
                one.wake.clear()
                self._due[i] = self._clock() + one.step()


class Played:
    """Inbox and clock of a loop, for which to wait is to play a world and its cameras.

    `change` changes the lines of a step, and `damage` the world; `coverage` is that of each step.
    """

    def __init__(self, change=lambda lines: lines, damage=lambda world: None):
        self.now, self.dropped, self.processor, self.coverage = 0.0, 0, 0.0, []
        self._change, self._damage, self._lines = change, damage, deque()

    def clock(self):
        return self.now

    def get(self, until):
        while not (self._lines and self._lines[0][0] <= self.now) and self.now < until:
            self.now = min(self.now + TICK, until)
            self.cameras.go()
            if self.now >= (k := len(self.coverage)) * self.world.scenario.time_step:
                covered, lines = self.world.scans(k, START + self.now)
                self.coverage.append(covered)
                self._lines += [(self.now + self.world.delay, line) for line in self._change(lines)]
        self.processor = time.process_time()
        return [self._lines.popleft()] if self._lines and self._lines[0][0] <= self.now else []

    def run(self, agent, site, folder, steps, **options):
        """Play some steps; return the frames, and the processor time of each decision, ms.

        The `options` are those of the world.
        """
        site.save(folder / "site.yaml")
        self.world = World(site, clock=self.clock, **options)
        cameras = folder / "cameras.yaml"
        cameras.write_text(yaml.safe_dump(self.world.settings()))
        self.world.calibrate(folder / "site.yaml", cameras)
        self._damage(self.world)
        scenario, faults, drivers = running(load_scenario(folder / "site.yaml"))[0], Faults(clock=self.clock), []
        for settings, server in zip(yaml.safe_load(cameras.read_text()).values(), self.world.servers, strict=True):
            drivers.append(Wireless(**{name: settings[name] for name in settings.keys() - {"driver", "view"}}))
            drivers[-1].server = server
        self.cameras = PlayedCameras(drivers, scenario, faults.tell, self.clock)
        loop = Loop(
            named_agent(agent, scenario), scenario, self.cameras, self, faults, views=load_views(cameras, scenario),
            operations=Operations(load_operations(cameras, scenario), scenario),
            monotonic=self.clock, wall=lambda: START + self.now,
        )  # fmt: skip
        loop.warm_up()
        frames, spent = [], []
        for frame in loop.steps():
            spent.append(1000.0 * (time.process_time() - self.processor))
            frames.append(frame)
            if len(self.coverage) >= steps:
                return frames, np.array(spent)
        raise AssertionError
