"""Closed loop of ``hitmac run`` with cameras that are played: ``python -m tools.closed_loop``.

This process plays the world, recorded people on a site; the cameras, servers on 127.0.0.1 that speak ONVIF and VISCA
over IP, with motors that have inertia and delay, and that lose messages; and a detector with noise, misses and false
detections. ``hitmac run`` steers them in a process of its own. Prints its coverage by the true headings beside that of
the same agent in the simulator, its latency and memory, and how far any motor left its limits.
"""

import argparse
import contextlib
import csv
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hitmac.agents.evaluate import evaluate
from hitmac.agents.evaluate.logs import read_log
from hitmac.envs import Scenario, load_scenario, observe
from hitmac.envs.parts.recordings import read_recording
from hitmac.envs.parts.sensors import limits_of
from hitmac.envs.parts.tilt import make_mount
from hitmac.signals import end_on_signal
from tests.agents.deploy.run.camera_servers import LIES, CameraServer, Motor, OnvifServer, ViscaServer

SITE = "examples/site/site.yaml"
NOISE = {"position_noise": 0.2, "missed_detections": 0.1, "false_detections": 0.02}
PTZ = {
    "tilt_limits": [(10, 60)], "mount_height": 5, "vertical_view": 40, "tilt_step": 5, "zoom": (30, 90),
    "zoom_step": 10,
}  # fmt: skip
DETECTOR = 0.05  # seconds from a picture to its detections
PASSWORD = "CLOSED_LOOP_PASSWORD"
FAULTS = ("silent", "late", "nonsense")


class World:
    """People who walk on a site, cameras that turn, and a detector that looks every `time_step`."""

    def __init__(self, scenario: Scenario, lost: float, seed: int, lie: str | None) -> None:
        self.scenario, self.random = scenario, np.random.default_rng(seed)
        recording = read_recording(scenario.tracks[0], scenario.time_step)
        self.people = np.full((recording.length, len(recording.tracks), 2), np.nan)  # (T, m, 2)
        for j, track in enumerate(recording.tracks):
            self.people[track.first : track.first + len(track.place), j] = track.place
        self.limits, self.position = limits_of(scenario), np.array(scenario.sensor_positions)
        self.zero, self.sign = self.limits.mean(-1), np.where(np.arange(scenario.num_sensors) % 3 == 2, 1, -1)
        self.servers: list[CameraServer] = []
        for i, start in enumerate(scenario.sensor_headings):
            pan = self.sign[i] * (start - self.zero[i])
            acceleration, delay = self.random.uniform(120, 240), self.random.uniform(0.02, 0.08)
            motor = Motor(pan, acceleration=acceleration, delay=delay, lie=lie)
            kind: Any = OnvifServer if i % 2 == 0 else ViscaServer
            self.servers.append(kind(motor, lost=lost, seed=seed + i))
            if scenario.tilt_limits:
                start = -make_mount(scenario).limit[i].mean()
                self.servers[i].tilt = Motor(start, acceleration=acceleration, delay=delay, lie=lie)

    def settings(self) -> dict[int, dict[str, Any]]:
        """Return the settings of the drivers by sensor."""
        found = {}
        for i, server in enumerate(self.servers):
            own = {"host": "127.0.0.1", "port": server.port, "zero": float(self.zero[i]), "sign": int(self.sign[i])}
            onvif = {"driver": "onvif", "user": "operator", "password_env": PASSWORD}
            found[i] = own | (onvif if isinstance(server, OnvifServer) else {"driver": "visca"})
            if self.scenario.zoom:
                found[i]["zooms"] = [[0, self.scenario.zoom[1]], [self.ends[i], self.scenario.zoom[0]]]
        return found

    @property
    def ends(self) -> list[int]:
        """Positions of the cameras' narrowest views."""
        return [1 if isinstance(server, OnvifServer) else 0x4000 for server in self.servers]

    def pose(self) -> dict[str, np.ndarray]:
        """Return the true headings (n,), tilts and fields of view, degrees."""
        found = {"heading": self.zero + self.sign * [server.motor.pan for server in self.servers]}
        if self.scenario.tilt_limits:
            found["tilt"] = -np.array([server.tilt.pan for server in self.servers]).clip(-90.0, 0.0)
        if self.scenario.zoom:
            focal = 1.0 / np.tan(np.radians(0.5 * np.array(self.scenario.zoom[::-1])))
            share = np.array([server.zoom / end for server, end in zip(self.servers, self.ends, strict=True)])
            found["field_of_view"] = 2.0 * np.degrees(np.arctan(1.0 / np.interp(share, [0, 1], focal)))
        return found

    def beyond(self) -> float:
        """Return the largest angle by which a motor has left its limits, degrees."""
        reached = np.array([(server.motor.lowest, server.motor.highest) for server in self.servers])
        reached = np.sort(self.zero[:, None] + self.sign[:, None] * reached)
        most = np.maximum(self.limits[:, 0] - reached[:, 0], reached[:, 1] - self.limits[:, 1]).max()
        for server, (low, high) in zip(self.servers, make_mount(self.scenario).limit, strict=False):
            most = max(most, low + server.tilt.highest, -server.tilt.lowest - high)
        return float(most)

    def seen(self, pose: dict[str, np.ndarray], places: np.ndarray) -> np.ndarray:
        """Return which camera sees which place (n, m)."""
        given = {"sensor_position": self.position, "target_position": places, **pose}
        return observe(self.scenario, ("visible",), **given)["pairs"][..., 0] > 0

    def detect(self, seen: np.ndarray, pose: dict[str, np.ndarray], places: np.ndarray) -> list[np.ndarray]:
        """Return the detections (k, 2) of each camera: what it sees, with errors, and false ones in its view."""
        found, s = [], self.scenario
        for i, own in enumerate(seen & (self.random.random(seen.shape) >= s.missed_detections)):
            false = np.empty((0, 2))
            for _ in range(self.random.poisson(s.false_detections)):
                there = np.zeros((1, 2))
                while not self.seen(pose, there)[i, 0]:
                    there = self.random.uniform(-1.0, 1.0, (1, 2)) * s.extent
                false = np.concatenate((false, there))
            found.append(
                np.concatenate((places[own] + self.random.normal(0.0, s.position_noise, (own.sum(), 2)), false))
            )
        return found

    def play(self, steps: int, port: int, faults: bool) -> np.ndarray:
        """Send detections for some steps; return the coverage of each."""
        coverage, start = [], time.monotonic()
        offset = time.time() - start
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
            for k in range(steps):
                now = start + k * self.scenario.time_step
                time.sleep(max(now - time.monotonic(), 0.0))
                if faults:
                    self.fail(k * self.scenario.time_step)
                places = self.people[k][np.isfinite(self.people[k, :, 0])]
                pose = self.pose()
                seen = self.seen(pose, places)
                coverage.append(seen.any(0).mean() if len(places) else np.nan)
                lines = [
                    json.dumps({"camera": i, "time": now + offset, "detections": found.round(3).tolist()})
                    for i, found in enumerate(self.detect(seen, pose, places))
                ]
                time.sleep(max(now + DETECTOR - time.monotonic(), 0.0))
                for line in lines:
                    wire.sendto(line.encode(), ("127.0.0.1", port))
        return np.array(coverage)

    def fail(self, now: float) -> None:
        """Let one camera after the other fail for 8 of 20 seconds, each in another way."""
        turn, since = divmod(now, 20.0)
        for i, server in enumerate(self.servers):
            chosen = int(turn) % len(self.servers) == i and 6.0 <= since < 14.0
            server.fault = FAULTS[int(turn) % len(FAULTS)] if chosen else None

    def close(self) -> None:
        """Close the servers."""
        for server in self.servers:
            server.close()


def joined(paths: list[str], seconds: float, folder: Path) -> str:
    """Write recordings one after the other to a file, up to a time, and return its path."""
    rows, start = [], 0.0
    for k, path in enumerate(paths):
        with open(path, newline="") as file:
            own = [(float(row["time"]), row["id"], row["x"], row["y"]) for row in csv.DictReader(file)]
        rows += [(start + now, f"{k}-{name}", x, y) for now, name, x, y in own]
        start = rows[-1][0] + 1.0
    target = folder / "tracks.csv"
    target.write_text("time,id,x,y\n" + "".join(",".join(map(str, row)) + "\n" for row in rows if row[0] <= seconds))
    return str(target)


def memory(process: int) -> float:
    """Return the resident memory of a process, MB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def free_port() -> int:
    """Return a free UDP port of 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def closed_loop(
    agent: str, tracks: list[str], minutes: float, *, lost: float = 0.02, faults: bool = False,
    lie: str | None = None, seed: int = 0, ptz: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Run an agent in the closed loop; return its metrics, and the messages of the run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = load_scenario(SITE)
        past = {"past_tracks": site.tracks, "tracks": (joined(tracks, 60.0 * minutes, folder),)}
        site = site.replace(identities=False, knowledge="shared", episode_steps=0, **past, **NOISE)
        if ptz:
            site = site.replace(**PTZ)
        site.save(folder / "site.yaml")
        world, port = World(site, lost, seed, lie), free_port()
        steps = len(world.people) - 1
        (folder / "cameras.yaml").write_text(yaml.safe_dump(world.settings()))
        log = folder / "run.jsonl"
        command = [
            sys.executable, "-m", "hitmac", "run", agent, "--site", str(folder / "site.yaml"), "--log", str(log),
            "--detections", f"udp://127.0.0.1:{port}", "--cameras", str(folder / "cameras.yaml"),
        ]  # fmt: skip
        run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {PASSWORD: "open sesame"})
        said: list[str] = []
        running = threading.Event()

        def listen() -> None:
            with run.stderr or contextlib.nullcontext(()) as lines:
                for line in lines:
                    said.append(line.rstrip())
                    if "running" in line:
                        running.set()
            running.set()

        threading.Thread(target=listen, daemon=True).start()
        sizes: list[float] = []
        ends = threading.Event()

        def weigh() -> None:
            while not ends.wait(1.0):
                sizes.append(memory(run.pid))

        try:
            running.wait(600.0)
            if not running.is_set() or run.poll() is not None:
                raise RuntimeError("\n".join(said))
            threading.Thread(target=weigh, daemon=True).start()
            coverage = world.play(steps, port, faults)
        finally:
            ends.set()
            run.terminate()
            run.wait(30)
            time.sleep(0.5)
            rates = [server.motor.rate for server in world.servers]
            world.close()
        logged = read_log(log)
        secret = "sesame" in log.read_text() + "\n".join(said)
        simulated = evaluate([agent], site, episodes=4, max_episode_steps=steps, progress=False)
        skipped = int(min(30.0, 15.0 * minutes))
        return {
            "steps": steps, "coverage": float(np.nanmean(coverage)),
            "simulated": next(iter(simulated["agents"].values()))["coverage"]["mean"],
            "latency 50 %, ms": float(np.median(logged.latency)),
            "latency 99 %, ms": float(np.quantile(logged.latency, 0.99)),
            "memory at the start, MB": float(np.median(sizes[skipped : skipped + 10])),
            "memory at the end, MB": float(np.median(sizes[-10:])),
            "beyond limits, degrees": world.beyond(), "steps decided": len(logged.time),
            "rates after the end": rates, "secrets": secret, "messages": said,
        }  # fmt: skip


def main() -> int:
    """Run the closed loop; return the number of failed checks."""
    parser = argparse.ArgumentParser(prog="python -m tools.closed_loop", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agent", default="belief-planner-fast")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--tracks", nargs="+", default=[f"examples/site/tracks/day-{k}.csv" for k in (6, 7, 8)])
    parser.add_argument("--lost", type=float, default=0.02, help="share of the messages that get lost")
    parser.add_argument("--faults", action="store_true", help="let one camera after the other fail")
    parser.add_argument("--lie", choices=LIES, help="let all cameras report another heading than theirs")
    parser.add_argument("--ptz", action="store_true", help="let all cameras also tilt and zoom")
    parser.add_argument("--seed", type=int, default=0, help="seed of the noise")
    options = parser.parse_args()
    found = closed_loop(**vars(options))
    messages = found.pop("messages")
    for name, value in found.items():
        print(f"{name:<28}{value:.3f}" if isinstance(value, float) else f"{name:<28}{value}")
    print("\n".join(messages))
    checks = [
        options.faults or options.lie or found["coverage"] >= found["simulated"] - 0.02,
        found["latency 99 %, ms"] <= 20.0,
        found["memory at the end, MB"] <= found["memory at the start, MB"] + 8.0,
        found["beyond limits, degrees"] <= 2.0,
        not any(found["rates after the end"]) and not found["secrets"],
    ]
    return checks.count(False)


if __name__ == "__main__":
    with end_on_signal("python -m tools.closed_loop"):
        sys.exit(main())
