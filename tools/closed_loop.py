"""Closed loop of ``hitmac run`` with cameras that are played: ``python -m tools.closed_loop``.

This process plays the world, recorded people on a site; the cameras, servers on 127.0.0.1 that speak ONVIF and VISCA
over IP, with motors that have inertia and delay, and that lose messages; and a detector with noise, misses and false
detections. ``hitmac run`` steers them in a process of its own. Prints its coverage by the true headings beside that of
the same agent in the simulator, its latency and memory, and how far any motor left its limits.

With ``--pixels`` the detector finds boxes in pictures, and ``hitmac site calibrate`` the cameras. ``--played-clock``
plays all in one process, on a clock of its own: the load of the machine does not count. Its cameras speak VISCA.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hitmac.agents.evaluate import evaluate
from hitmac.agents.evaluate.logs import read_log
from hitmac.signals import end_on_signal
from tests.agents.deploy.run.camera_servers import LIES
from tests.agents.deploy.run.played import Played
from tests.agents.deploy.run.world import PASSWORD, World, make_site


def memory(process: int) -> float:
    """Return the resident memory of a process, MB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def free_port() -> int:
    """Return a free UDP port of 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def closed_loop(
    agent: str, tracks: list[str], minutes: float, *, ptz: bool = False, played_clock: bool = False, **options: Any
) -> dict[str, Any]:
    """Run an agent in the closed loop; return its metrics, and the messages of the run.

    The `options` are those of the world.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = make_site(tracks, minutes, folder, ptz=ptz or options.get("pixels", False))
        steps = int(240 * minutes)
        play = _on_a_played_clock if played_clock else _by_processes
        found: dict[str, Any] = {"steps": steps} | play(agent, site, folder, steps, options)
        simulated = evaluate([agent], site, episodes=4, max_episode_steps=steps, progress=False)
        return found | {"simulated": next(iter(simulated["agents"].values()))["coverage"]["mean"]}


def _on_a_played_clock(agent: str, site: Any, folder: Path, steps: int, options: dict[str, Any]) -> dict[str, Any]:
    played = Played()
    frames, spent = played.run(agent, site, folder, steps, **options)
    return {
        "coverage": float(np.nanmean(played.coverage)), "steps decided": len(frames),
        "processor 50 %, ms": float(np.median(spent)), "processor 99 %, ms": float(np.quantile(spent, 0.99)),
        "beyond limits, degrees": played.world.beyond(),
        "messages": [line for frame in frames for line in frame["messages"]],
    }  # fmt: skip


def _by_processes(agent: str, site: Any, folder: Path, steps: int, options: dict[str, Any]) -> dict[str, Any]:
    site.save(folder / "site.yaml")
    world, port, log = World(site, **options), free_port(), folder / "run.jsonl"
    os.environ[PASSWORD] = "open sesame"
    (folder / "cameras.yaml").write_text(yaml.safe_dump(world.settings()))
    world.calibrate(folder / "site.yaml", folder / "cameras.yaml")
    command = [
        sys.executable, "-m", "hitmac", "run", agent, "--site", str(folder / "site.yaml"), "--log", str(log),
        "--detections", f"udp://127.0.0.1:{port}", "--cameras", str(folder / "cameras.yaml"),
    ]  # fmt: skip
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
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
        if not any("running" in line for line in said):
            raise RuntimeError("\n".join(said))
        threading.Thread(target=weigh, daemon=True).start()
        coverage = play(world, steps, port)
    finally:
        ends.set()
        run.terminate()
        run.wait(30)
        time.sleep(0.5)
        rates = [server.motor.rate for server in world.servers]
        world.close()
    logged = read_log(log)
    skipped = min(30, steps // 16)
    return {
        "coverage": float(np.nanmean(coverage)), "steps decided": len(logged.time),
        "latency 50 %, ms": float(np.median(logged.latency)),
        "latency 99 %, ms": float(np.quantile(logged.latency, 0.99)),
        "memory at the start, MB": float(np.median(sizes[skipped : skipped + 10])),
        "memory at the end, MB": float(np.median(sizes[-10:])),
        "beyond limits, degrees": world.beyond(), "rates after the end": rates,
        "secrets": "sesame" in log.read_text() + "\n".join(said), "messages": said,
    }  # fmt: skip


def play(world: World, steps: int, port: int) -> np.ndarray:
    """Send detections for some steps; return the coverage of each."""
    coverage, start, t = [], time.monotonic(), world.scenario.time_step
    offset = time.time() - start
    waiting: deque[tuple[float, list[bytes]]] = deque()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        for k in range(steps):
            now = start + k * t
            time.sleep(max(now - time.monotonic(), 0.0))
            covered, lines = world.scans(k, now + offset)
            coverage.append(covered)
            waiting.append((now + world.delay, lines))
            while waiting and waiting[0][0] < now + t:
                due, lines = waiting.popleft()
                time.sleep(max(due - time.monotonic(), 0.0))
                for line in lines:
                    wire.sendto(line, ("127.0.0.1", port))
    return np.array(coverage)


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
    parser.add_argument("--pixels", action="store_true", help="the same, calibrated, with boxes in their pictures")
    parser.add_argument(
        "--played-clock", action="store_true", help="play all on a clock, whatever else the machine does"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the noise")
    options = parser.parse_args()
    found = closed_loop(**vars(options))
    messages = found.pop("messages")
    for name, value in found.items():
        print(f"{name:<28}{value:.3f}" if isinstance(value, float) else f"{name:<28}{value}")
    print("\n".join(messages))
    checks = [
        options.faults or options.lie or found["coverage"] >= found["simulated"] - (0.05 if options.pixels else 0.02),
        found["beyond limits, degrees"] <= 2.0,
        found.get("latency 99 %, ms", found.get("processor 99 %, ms")) <= 20.0,
    ]
    if not options.played_clock:
        checks += [
            found["memory at the end, MB"] <= found["memory at the start, MB"] + 8.0,
            not any(found["rates after the end"]) and not found["secrets"],
        ]
    return checks.count(False)


if __name__ == "__main__":
    with end_on_signal("python -m tools.closed_loop"):
        sys.exit(main())
