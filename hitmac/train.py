"""Train agents for directional sensor coverage, evaluate them and show what they learned.

``hitmac train coverage``, or ``hitmac train`` alone, trains a policy that turns the sensors directly, by imitation of a
planner; ``coverage-ppo`` trains it from reward alone; ``executor`` and ``coordinator`` train the two levels of HiT-MAC,
``hit-mac`` both in a row; ``duel`` trains two teams against each other. ``--help`` after a job explains its options.
The results are in ``runs/<name>/``. In a checkout, ``python train.py`` is the same.
"""

import os

# Threads of PyTorch that wait for each other sleep, and leave the cores to others; it reads this when it is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import dataclasses
import importlib.util
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence

from hitmac.agents.command_line import import_modules, parse, stop_on_bad_input
from hitmac.agents.training import config
from hitmac.agents.training.config import JOBS, DuelOptions, HitMacOptions, Job
from hitmac.agents.training.learner import TrainingError
from hitmac.agents.training.resume import contents, open_run, resolve
from hitmac.agents.training.sweep import check_group, train_group, train_run
from hitmac.envs.tasks import TASKS
from hitmac.envs.validation import IMPORT_HINT, did_you_mean
from hitmac.signals import end_on_signal, end_with_parent

PROGRAM = sys.argv[0] if sys.argv[0].startswith("hitmac ") else "train.py"
COMMANDS: dict[str, type[Job]] = {**JOBS, HitMacOptions.job: HitMacOptions, DuelOptions.job: DuelOptions}


def main() -> None:
    """Run the command line; an expected error ends it in one line."""
    end_with_parent()
    threading.excepthook = _show  # of TensorBoard's writer, which has a thread of its own
    with (
        end_on_signal(PROGRAM, "; a checkpoint is kept, if there is one: continue with --resume"),
        stop_on_bad_input(PROGRAM),
    ):
        try:
            run_command(sys.argv[1:])
        except TrainingError as error:
            print(f"\n{PROGRAM}: error: {error}; the last checkpoint is kept", file=sys.stderr)
            sys.exit(1)


def _show(failed: threading.ExceptHookArgs) -> None:
    """Show the exception of a thread, except for a full disk, which the training reports itself."""
    if not issubclass(failed.exc_type, OSError):
        threading.__excepthook__(failed)


def _check_names(job: str, jobs: Mapping[str, type[Job]], arguments: Sequence[str]) -> None:
    """Raise ValueError for an option that only other jobs have."""
    options = {name: {config.flag(field.name) for field in dataclasses.fields(kind)} for name, kind in jobs.items()}
    for given in arguments:
        option = given.partition("=")[0].replace("_", "-").replace("--no-", "--")
        others = [name for name, own in options.items() if option in own]
        if others and job not in others:
            raise ValueError(f"{job} has no {option}; it is an option of {', '.join(others)}")


def run_command(arguments: list[str]) -> None:
    """Train, evaluate and report as a command line asks, with one seed or several; or continue a run."""
    import_modules(arguments)
    own = {name.lower(): config.default_job(task) for name, task in TASKS.items() if name.lower() not in COMMANDS}
    jobs = COMMANDS | own
    if arguments and arguments[0] in ("-h", "--help"):
        print(f"usage: {PROGRAM} [JOB] [OPTIONS]\n")
        print("jobs (--help after one of them explains its options; without a job: coverage)")
        print("".join(f"  {name:<12} {(kind.__doc__ or '').splitlines()[0]}\n" for name, kind in jobs.items()))
    job = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "coverage"
    if job not in jobs:
        raise ValueError(f"unknown job {job!r}{did_you_mean(job, jobs)}: known are {', '.join(jobs)}{IMPORT_HINT}")
    for module in ("matplotlib", "PIL", "tensorboard"):
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"training requires {module}: pip install 'hitmac[train]'")
    _check_names(job, jobs, arguments)
    arguments, program = config.with_seed_range(arguments), f"{PROGRAM} {job}"
    asked = parse(jobs[job], program, arguments)
    options, scenario = resolve(asked, config.given_options(type(asked), arguments))
    if options.is_group or options.clusters:
        check_group(options)
    with open_run(options, scenario) as options:
        stopped = (train_group if options.is_group else train_run)(options, scenario)
    if stopped:
        print(f"\nstopped; continue with: {program} --run-dir {shlex.quote(str(options.folder))} --resume")
    print("\n".join([f"\nresults in {options.folder}/:", *(f"  {line}" for line in contents(options.folder))]))


if __name__ == "__main__":
    main()
