"""The loop of a training over the updates of an engine, until a limit or a signal, with checkpoints and a curve."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from hitmac.agents.training.config import Options
from hitmac.agents.training.learner import (
    SB3Engine,
    TrainingClock,
    TrainingError,
    check_outputs,
    make_environments,
    warm_up,
)
from hitmac.agents.training.report import CurveEvaluation
from hitmac.envs.scenario import Scenario


def train(options: Options, scenario: Scenario) -> tuple[Any, bool]:
    """Train until a limit or a signal; return the engine, and whether a signal stopped it.

    Checkpoints and signals take effect between two updates only, so that a resumed run equals the uninterrupted one.

    Raises:
        TrainingError: a number is not finite, a file cannot be written, or the engine fails.
    """
    kind: Any = SB3Engine
    if options.engine == "rllib":
        from hitmac.agents.training.rllib.engine import RLlibEngine

        kind = RLlibEngine
    print("compiling: a minute or more in the first run, which does not count as training", flush=True)
    with np.errstate(all="ignore"):  # numbers that are not finite end the training
        warm_up(make_environments(options, scenario))
        engine = kind(options, scenario, options.folder)
        try:
            with stop_on_signal() as stop:
                _update(options, engine, stop)
        except TrainingError as error:
            raise TrainingError(f"step {engine.steps}: {error}") from None
        except OSError as error:
            raise TrainingError(str(error)) from None
        except (ValueError, TypeError) as error:  # not a wrong option: show its traceback
            raise RuntimeError(f"the training failed at step {engine.steps}") from error
        finally:
            engine.close()
    return engine, stop.is_set()


def _update(options: Options, engine: Any, stop: threading.Event) -> None:
    """Update an engine until a limit or a signal, with checkpoints and points of the curve."""
    check_outputs(engine.policies)
    clock = TrainingClock(options, engine)
    curve, saved = CurveEvaluation(options, engine, clock), engine.progress.seconds
    try:
        while clock.fraction < 1.0 and not stop.is_set():
            clock.tick()
            curve.add_point()
            clock.tick(paused=True)
            if stop.is_set():
                break
            engine.update(clock)
            clock.tick()
            if engine.progress.seconds - saved >= options.save_every:
                engine.save()
                saved = engine.progress.seconds
    finally:
        clock.close()
    engine.save()  # before the last point, which takes a while
    curve.add_point(final=True)
    engine.save()


class Stop(threading.Event):
    """Request to stop by the signal `number`; 0: none so far."""

    number = 0


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Yield a request to stop, set by the first Ctrl-C or SIGTERM; a second one interrupts as usual.

    In another thread than the main one, as in a search that trains in several, no signal sets it.
    """
    main = threading.current_thread() is threading.main_thread()
    stop, numbers = Stop(), [signal.SIGINT, signal.SIGTERM] if main else []
    before = {number: signal.getsignal(number) for number in numbers}

    def handle(handlers: Mapping[signal.Signals, Any]) -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def on_signal(number: int, frame: object) -> None:
        handle(before)
        with suppress(OSError):  # print is not reentrant: the signal may have interrupted it
            os.write(1, b"\nstopping after this update: evaluating and saving (Ctrl-C again to abort)\n")
        stop.number = number
        stop.set()

    try:
        handle(dict.fromkeys(numbers, on_signal))
        yield stop
    finally:
        handle(before)
