"""World that is played: people who walk on the site of the examples, cameras that turn, and detectors.

With `pixels` it has three dimensions: cameras with unknown angles and lenses, which ``hitmac site calibrate`` finds
from rows with errors, and detectors of boxes in their pictures.
"""

import contextlib
import csv
import io
import json
import time

import numpy as np

from hitmac.agents.deploy.camera import View
from hitmac.agents.deploy.site.calibrate import COLUMNS
from hitmac.agents.deploy.site.command import main as site_command
from hitmac.envs import load_scenario, observe
from hitmac.envs.parts.recordings import read_recording
from hitmac.envs.parts.sensors import limits_of
from hitmac.envs.parts.tilt import make_mount
from tests.agents.deploy.run.camera_servers import CameraServer, Motor, OnvifServer, ViscaServer

NOISE = {"position_noise": 0.2, "missed_detections": 0.1, "false_detections": 0.02}
PTZ = {
    "tilt_limits": [(10, 60)], "mount_height": 5, "vertical_view": 40, "tilt_step": 5, "zoom": (30, 90),
    "zoom_step": 10,
}  # fmt: skip
PICTURE, PIXEL_ERROR, ANGLE_ERROR, ROWS = (1920, 1080), 2.0, 0.1, 12  # pixels, degrees, rows of a calibration
ZOOMING = 2.0  # seconds from the widest to the narrowest view
PASSWORD = "CLOSED_LOOP_PASSWORD"
FAULTS = ("silent", "late", "nonsense")
CLOCK_OFF = 2.0  # seconds, of the boxes of camera 1 where cameras fail


def make_site(tracks, minutes, folder, *, ptz=False):
    """Return the site of the examples with recordings, one after the other, up to a time."""
    rows, start = [], 0.0
    for k, path in enumerate(tracks):
        with open(path, newline="") as file:
            own = [(float(row["time"]), row["id"], row["x"], row["y"]) for row in csv.DictReader(file)]
        rows += [(start + now, f"{k}-{name}", x, y) for now, name, x, y in own]
        start = rows[-1][0] + 1.0
    file = folder / "tracks.csv"
    lines = [",".join(map(str, row)) for row in rows if row[0] <= 60.0 * minutes]
    file.write_text("\n".join(["time,id,x,y", *lines]) + "\n")
    site = load_scenario("examples/site/site.yaml")
    past = {"past_tracks": site.tracks, "tracks": (str(file),)}
    return site.replace(identities=False, knowledge="shared", episode_steps=0, **past, **NOISE, **PTZ if ptz else {})


class World:
    """People, cameras, and a detector that looks every `time_step`.

    Half of the cameras speak ONVIF and half VISCA, at ports of 127.0.0.1; on a `clock` of its own none has a port.
    With `faults` one after the other fails. `views` are the true ones, of cameras with boxes.
    """

    def __init__(self, scenario, *, lost=0.0, seed=0, lie=None, pixels=False, faults=False, clock=None):
        self.scenario, self.random, self.faults = scenario, np.random.default_rng(seed), faults
        recording = read_recording(scenario.tracks[0], scenario.time_step)
        self.people = np.full((recording.length, len(recording.tracks), 2), np.nan)  # (T, m, 2)
        for j, track in enumerate(recording.tracks):
            self.people[track.first : track.first + len(track.place), j] = track.place
        n = scenario.num_sensors
        self.limits, self.position = limits_of(scenario), np.array(scenario.sensor_positions)
        self.zero, self.sign = self.limits.mean(-1), np.where(np.arange(n) % 3 == 2, 1, -1)
        self.servers, self.delay = [], 0.3 if pixels else 0.05  # seconds from a picture to its detections
        self.tilt_zero, self.tall = np.zeros(n), np.full(len(recording.tracks), 1.7)
        if pixels:
            self.tilt_zero, self.tall = self.random.uniform(-5, 5, n), self.random.uniform(1.5, 1.9, len(self.tall))
        for i, start in enumerate(scenario.sensor_headings):
            own = {"acceleration": self.random.uniform(120, 240), "delay": self.random.uniform(0.02, 0.08), "lie": lie}
            own["clock"] = clock or time.monotonic
            motor = Motor(self.sign[i] * (start - self.zero[i]), **own)
            kind = CameraServer if clock else OnvifServer if i % 2 == 0 else ViscaServer
            server = kind(motor, lost=lost, seed=seed + i)
            if scenario.tilt_limits:
                server.tilt = Motor(self.tilt_zero[i] - make_mount(scenario).limit[i].mean(), **own)
            server.narrowest = 1 if isinstance(server, OnvifServer) else 0x4000
            server.zoom_rate = server.narrowest / ZOOMING
            self.servers.append(server)
        self.views = [self._view(i) for i in range(n)] if pixels else []

    def _view(self, i):
        """Return the true view of a camera."""
        wide, narrow = (0.5 * PICTURE[0] / np.tan(np.radians(0.5 * view)) for view in self.scenario.zoom[::-1])
        return View(
            picture=PICTURE, height=make_mount(self.scenario).height[i], position=tuple(self.position[i]),
            focal=((0, wide), (self.servers[i].narrowest, narrow)), distortion=self.random.uniform(-0.05, 0),
            roll=self.random.uniform(-1, 1), zero=self.zero[i], sign=self.sign[i], tilt_zero=self.tilt_zero[i],
        )  # fmt: skip

    def settings(self):
        """Return the settings of the drivers by sensor; with pixels without those that a calibration finds."""
        found = {}
        for i, server in enumerate(self.servers):
            own = {"driver": "visca", "host": "127.0.0.1", "port": getattr(server, "port", 1)}
            if isinstance(server, OnvifServer):
                own |= {"driver": "onvif", "user": "operator", "password_env": PASSWORD}
            if not self.views:
                own |= {"zero": float(self.zero[i]), "sign": int(self.sign[i])}
            if self.scenario.zoom:
                own["zooms"] = [[0, self.scenario.zoom[1]], [server.narrowest, self.scenario.zoom[0]]]
            found[i] = own
        return found

    def calibrate(self, site, cameras):
        """Calibrate each camera from rows with errors, at four headings and both ends of its zoom."""
        for i, view in enumerate(self.views):
            rows = []
            while (k := len(rows)) < ROWS:
                pan = view.sign * (self.limits[i] @ [0.8 - 0.2 * (k % 4), 0.2 + 0.2 * (k % 4)] - view.zero)
                tilt, zoom = self.random.uniform(-40, -15), k // 4 % 2 * self.servers[i].narrowest
                pixel = self.random.uniform(0.1, 0.9, 2) * PICTURE
                place = view.floor(pixel, view.zero + view.sign * pan, tilt, zoom)[0]
                if np.linalg.norm(place - self.position[i]) < 20.0:  # not over the horizon
                    noise = self.random.normal(size=4) * np.repeat((PIXEL_ERROR, ANGLE_ERROR), 2)
                    rows.append([*np.array([*pixel, pan, tilt]) + noise, zoom, *place])
            path = cameras.with_name(f"{i}.csv")
            path.write_text("\n".join([",".join(COLUMNS), *(",".join(f"{x:.4f}" for x in row) for row in rows)]))
            with contextlib.redirect_stdout(io.StringIO()):
                site_command(["calibrate", f"{path}", "--site", f"{site}", "--cameras", f"{cameras}", "--picture",
                              *map(str, PICTURE)])  # fmt: skip

    def pose(self):
        """Return the true headings (n,), tilts and fields of view, degrees."""
        found = {"heading": self.zero + self.sign * [server.motor.pan for server in self.servers]}
        if self.scenario.tilt_limits:
            found["tilt"] = (self.tilt_zero - [server.tilt.pan for server in self.servers]).clip(0.0, 90.0)
        if self.scenario.zoom:
            focal = 1.0 / np.tan(np.radians(0.5 * np.array(self.scenario.zoom[::-1])))
            share = [server.zoom / server.narrowest for server in self.servers]
            found["field_of_view"] = 2.0 * np.degrees(np.arctan(1.0 / np.interp(share, [0, 1], focal)))
        return found

    def beyond(self):
        """Return the largest angle by which a motor has left its limits, degrees."""
        reached = np.array([(server.motor.lowest, server.motor.highest) for server in self.servers])
        reached = np.sort(self.zero[:, None] + self.sign[:, None] * reached)
        most = np.maximum(self.limits[:, 0] - reached[:, 0], reached[:, 1] - self.limits[:, 1]).max()
        for i, (low, high) in enumerate(make_mount(self.scenario).limit):
            tilt = self.servers[i].tilt
            most = max(most, low - self.tilt_zero[i] + tilt.highest, self.tilt_zero[i] - tilt.lowest - high)
        return float(most)

    def seen(self, pose, places):
        """Return which camera sees which place (n, m)."""
        given = {"sensor_position": self.position, "target_position": places, **pose}
        return observe(self.scenario, ("visible",), **given)["pairs"][..., 0] > 0

    def boxes(self, i, pose, places, tall):
        """Return the boxes (k, 4) in the picture of a camera, with errors, of people at places (K, 2)."""
        device = pose["heading"][i], self.tilt_zero[i] - pose["tilt"][i], self.servers[i].zoom
        foot = self.views[i].pixels(places, *device)
        head = np.array([self.views[i].pixels(at, *device, h)[0] for at, h in zip(places, tall, strict=True)])
        head, half = head.reshape(-1, 2), 0.2 * np.linalg.norm(foot - head.reshape(-1, 2), axis=1)
        box = np.column_stack((foot[:, 0] - half, head[:, 1], foot[:, 0] + half, foot[:, 1]))
        box = (box + self.random.normal(0.0, PIXEL_ERROR, box.shape)).clip(0.0, np.tile(PICTURE, 2))
        return box[(box[:, 0] < box[:, 2]) & (box[:, 1] < box[:, 3])]  # not those outside, nor NaN

    def detect(self, seen, pose, places, tall):
        """Return the detections (k, 2), or boxes (k, 4), of each camera: what it sees, and false ones in its view."""
        found, s = [], self.scenario
        for i, own in enumerate(seen & (self.random.random(seen.shape) >= s.missed_detections)):
            false = np.empty((0, 2))
            for _ in range(self.random.poisson(s.false_detections)):
                there = np.zeros((1, 2))
                while not self.seen(pose, there)[i, 0]:
                    there = self.random.uniform(-1.0, 1.0, (1, 2)) * s.extent
                false = np.concatenate((false, there))
            if self.views:
                heights = np.concatenate((tall[own], np.full(len(false), 1.7)))
                found.append(self.boxes(i, pose, np.concatenate((places[own], false)), heights))
            else:
                noise = self.random.normal(0.0, s.position_noise, (own.sum(), 2))
                found.append(np.concatenate((places[own] + noise, false)))
        return found

    def scans(self, k, when):
        """Return the present coverage, and the lines of the cameras, of step k, a time of the computer's clock.

        Detections have the time of the picture; boxes that at which the detector has found them.
        """
        if self.faults:
            self.fail(k * self.scenario.time_step)
        here = np.isfinite(self.people[k, :, 0])
        places, pose = self.people[k][here], self.pose()
        seen, lines = self.seen(pose, places), []
        for i, found in enumerate(self.detect(seen, pose, places, self.tall[here])):
            stated = when + (self.delay + CLOCK_OFF * (self.faults and i == 1) if self.views else 0.0)
            kind = "boxes" if self.views else "detections"
            lines.append(json.dumps({"camera": i, "time": stated, kind: found.round(3).tolist()}).encode())
        return seen.any(0).mean() if len(places) else np.nan, lines

    def fail(self, now):
        """Let one camera after the other fail for 8 of 20 seconds, each in another way."""
        turn, since = divmod(now, 20.0)
        for i, server in enumerate(self.servers):
            chosen = int(turn) % len(self.servers) == i and 6.0 <= since < 14.0
            server.fault = FAULTS[int(turn) % len(FAULTS)] if chosen else None

    def close(self):
        """Close the servers."""
        for server in self.servers:
            server.close()
