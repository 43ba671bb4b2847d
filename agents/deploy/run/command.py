"""Command line ``hitmac run``: turn real cameras."""

import contextlib
import gc
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from hitmac import __version__
from hitmac.agents.command_line import parse, stop_on_bad_input
from hitmac.agents.deploy.export.folder import CARD
from hitmac.agents.deploy.run.cameras import Cameras, names_of
from hitmac.agents.deploy.run.detections import Inbox, Source, open_source, simulated
from hitmac.agents.deploy.run.drivers import load_cameras, load_sections
from hitmac.agents.deploy.run.live import Live
from hitmac.agents.deploy.run.log import Faults, Log
from hitmac.agents.deploy.run.loop import Loop
from hitmac.agents.deploy.run.operation import Operations, load_operations
from hitmac.agents.deploy.run.pictures import load_views
from hitmac.agents.deploy.run.stills import Still, Stills
from hitmac.agents.evaluate.logs import FORMAT, VERSION
from hitmac.agents.learned.beliefs import BeliefPolicyState
from hitmac.agents.names import named_agent
from hitmac.agents.policy import Observation, Starts, State
from hitmac.agents.registry import Agent
from hitmac.agents.tracking import Tracks
from hitmac.agents.tracking.features import update
from hitmac.agents.tracking.tracks import Estimate
from hitmac.envs.scenario import Scenario, load_scenario, portable, with_settings
from hitmac.envs.validation import NotNegative, Range, convert, field_types, shortly

PROGRAM = "hitmac run"
SIMULATED = "simulated"
LOGGED = ("time", "heading", "view", "tracks", "orders", "covered", "latency", "moves")
"""Parts of a frame in each line of the log; :data:`SOME` where there are any."""
SOME = ("messages", "paused", "by_hand", "left", "begun", "rests", "tilt")


@dataclass(frozen=True)
class Options:
    """Turn real cameras: hitmac run planner --site site.yaml --detections udp://127.0.0.1:5005 --cameras my.yaml."""

    agent: str = "belief-planner-fast"
    """Agent, as in hitmac evaluate: belief-planner, pretrained:beliefs, the directory of a run; or a folder of hitmac
    export, which needs onnxruntime. As the first argument, it needs no --agent."""
    site: str = "site.yaml"
    """Scenario of the site, with the placement fixed."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Parameter of the site, NAME=VALUE with the value in YAML, such as position_noise=0.3; can be repeated."""
    detections: str = "-"
    """Source of detections: -, the standard input; udp://HOST:PORT; a file that grows; mqtt://HOST[:PORT]/TOPIC, or
    mqtts, with the variables HITMAC_MQTT_USER and HITMAC_MQTT_PASSWORD; simulated."""
    cameras: str = SIMULATED
    """Cameras: simulated, stdout, or a YAML file with an entry for each: onvif, visca, simulated or stdout."""
    log: Path | None = None
    """File of the log, .jsonl. One of the same run is continued: a paused run stays paused, and the moves of the last
    hour count. Left out: a new one, run-DATE-TIME.jsonl."""
    log_detections: bool = False
    """Also log the detections."""
    port: Annotated[int | None, Range(0, 65535)] = None
    """Port of the page of the run; 0: any free one. Left out: no page."""
    host: str = "127.0.0.1"
    """Address at which the page is served."""
    paused: bool = False
    """Start paused, until Resume on the page: meanwhile only orders by hand turn the cameras."""
    minutes: NotNegative = 0.0
    """Duration; 0: until Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; Ctrl-C and SIGTERM end it with the status 0."""
    options = parse(Options, PROGRAM, arguments, first="--agent")
    with stop_on_bad_input(PROGRAM), contextlib.suppress(KeyboardInterrupt):
        for name in ("port", "minutes"):
            convert(f"--{name}", field_types(Options)[name], getattr(options, name))
        if options.paused and options.port is None:
            raise ValueError("--paused is given; it requires --port, whose page resumes")
        run(options)


def run(options: Options) -> None:
    """Turn the cameras of a site until the time is over, or an exception is raised."""
    scenario, assumed = running(with_settings(load_scenario(options.site), options.set))
    agent = exported_agent(options.agent, scenario) or named_agent(options.agent, scenario)
    names, faults, inbox = names_of(scenario), Faults(), Inbox()
    path = options.log or Path(time.strftime("run-%Y%m%d-%H%M%S.jsonl"))
    drivers, views = load_cameras(options.cameras, scenario), load_views(options.cameras, scenario)
    operations = Operations(load_operations(options.cameras, scenario), scenario, agent.policy)
    header = {
        FORMAT: VERSION, "version": __version__, "agent": agent.name, "start": round(time.time(), 3), "names": names,
        "scenario": portable(scenario.replace(tracks=(), past_tracks=(), walk="still"), path.parent),
        "private": operations.zones,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:  # closed in reverse, the cameras first
        log = stack.enter_context(contextlib.closing(Log(path, header, faults)))
        since = time.time() - time.monotonic()  # Unix seconds at which the monotonic clock began
        for i, budget in enumerate(operations.budgets):
            budget.recall(min(one.time - since, time.monotonic()) for one in log.recent if i in one.begun)
        paused = options.paused
        if log.recent:
            faults.tell(f"the run continues; its last step was {time.time() - log.recent[-1].time:.0f} s ago")
            paused |= log.recent[-1].paused
        if paused and options.port is None:
            raise ValueError(f"{path} ends with a pause; it requires --port, whose page resumes")
        live = None
        if options.port is not None:
            stills = Stills(load_sections(options.cameras, scenario, "page", Still), names, faults)
            stack.callback(stills.close)
            live = Live(
                scenario, options.port, options.host, returns=operations.returns, private=operations.zones,
                stills=stills,
            )  # fmt: skip
            live.paused = paused
            stack.callback(live.close)
        stack.callback(lambda: say(*faults.messages()))
        if options.detections != SIMULATED:  # what can fail at once comes before what takes minutes
            stack.callback(open_source(options.detections, inbox, faults).close)
        for name, driver in zip(names, drivers, strict=True):
            try:
                driver.heading()
            except Exception as error:  # it may start later
                say(f"camera {name} does not answer yet: {shortly(error, str)}")
        timeout, privacy = max(3.0 * scenario.time_step, 0.5), operations.privacy()
        for name, own in zip(names, privacy, strict=True):
            if own and (when := own.fault()):
                say(f"camera {name} has no heading that spares its private zones, as on {when}")
        cameras = Cameras(drivers, scenario, faults.tell, timeout=timeout, privacy=privacy)
        stack.callback(cameras.close)
        loop = Loop(agent, scenario, cameras, inbox, faults, hands=live, views=views, operations=operations)
        say(f"{agent.name} for {', '.join(names)}{assumed}; log: {path}")
        say("preparing the agent, the first time for minutes")
        loop.warm_up()
        gc.collect()
        gc.freeze()  # what is loaded is not searched for garbage again, which would take longer than a decision
        if options.detections == SIMULATED:
            stack.callback(Source(simulated(scenario, cameras), inbox, faults).close)
        inbox.clear()
        page = f"{', paused' * paused}; page: {live.address}" if live else ""
        say(f"running{page}; Ctrl-C stops the cameras and ends")
        end = time.monotonic() + 60.0 * (options.minutes or math.inf)
        for frame in loop.steps():
            say(*frame["messages"])
            kept = [name for name in SOME if frame.get(name)]
            kept += ["detections"] * options.log_detections
            log.write({name: frame[name] for name in (*LOGGED, *kept)})
            if live is not None:
                live.publish(frame)
            if time.monotonic() >= end:
                break


class ExportedPolicy:
    """Policy of named targets from a folder of ``hitmac export``, run by onnxruntime.

    Its targets are the tracks that exist with a probability of 1/2 or more, under their labels.

    Raises ValueError for a policy of another number of sensors, ModuleNotFoundError without onnxruntime.
    """

    features = ("detections",)

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        try:
            from hitmac.agents.deploy.export import run
        except ModuleNotFoundError:
            raise ModuleNotFoundError(f"{folder} requires onnxruntime: pip install 'hitmac[export]'") from None
        self._begin, self._tracks = lambda: run.Agent(folder), Tracks(scenario, forecast=False)
        self._zooms, self._tilts = bool(scenario.zoom), bool(scenario.tilt_limits)
        if (n := self._begin().site["num_sensors"]) != scenario.num_sensors:
            raise ValueError(f"{folder} is a policy for {n} sensors, but the site has {scenario.num_sensors}")

    def predict(
        self, observation: Observation, state: State = None, episode_start: Starts = None, deterministic: bool = False
    ) -> tuple[np.ndarray, State]:
        """Act as :class:`hitmac.agents.policy.Policy` specifies, for one scene."""
        tracks, runner = (None, self._begin()) if state is None else state
        _, tracks = update(self._tracks, observation, tracks, episode_start)
        found = self._tracks.estimate(tracks)
        shown = found.label[0, 0] > 0
        labels, sensors = found.label[0, 0, shown].tolist(), observation["sensors"][0].astype(np.float64)
        heading = np.where(sensors.any(-1), np.degrees(np.arctan2(sensors[:, 2], sensors[:, 3])), np.nan)
        left = runner.memory.rows.keys() - set(labels)
        places = {"sensor_position": sensors[:, :2], "heading": heading}
        if self._zooms:
            places["field_of_view"] = np.where(sensors[:, 4] > 0.0, 2.0 * sensors[:, 4], 360.0)
        if self._tilts:
            places["tilt"] = sensors[:, -2]
        return runner.decide(found.place[0, 0, shown], labels, left, **places)[:1], BeliefPolicyState(tracks, runner)

    def estimate(self, state: Any, **options: float) -> Estimate:
        """Return the tracks; see :meth:`~hitmac.agents.tracking.Tracks.estimate`."""
        return self._tracks.estimate(state.beliefs, **options)


def exported_agent(name: str, scenario: Scenario) -> Agent | None:
    """Return the agent of an exported folder; None for any other name."""
    if not (Path(name) / CARD).is_file():
        return None
    policy = ExportedPolicy(Path(name), scenario)
    return Agent(name, policy, policy.features)


def running(scenario: Scenario) -> tuple[Scenario, str]:
    """Return a scenario of real cameras, whose detections have no names and are shared, and what it assumes, in words.

    Raises ValueError for a scenario whose cameras are not fixed.
    """
    if scenario.placement != "fixed":
        raise ValueError(f"placement is {scenario.placement}; real cameras require fixed, with sensor_positions")
    changes: dict[str, Any] = {"identities": False, "knowledge": "shared", "sensor_names": names_of(scenario)}
    words = ""
    if not (np.any(scenario.position_noise) or np.any(scenario.missed_detections) or scenario.false_detections):
        noise = float(f"{0.02 * scenario.of_each_sensor('sensing_range').mean():.2g}")
        assumed = {"position_noise": noise, "missed_detections": 0.1, "false_detections": 0.02}
        words = ", assumed " + " ".join(f"{name}={value:g}" for name, value in assumed.items())
        changes |= assumed
    return scenario.replace(**changes), words


def say(*lines: str) -> None:
    """Write lines to the standard error, if someone reads it."""
    with contextlib.suppress(OSError):
        for line in lines:
            print(f"{time.strftime('%H:%M:%S')} {PROGRAM}: {line}", file=sys.stderr, flush=True)
