"""Brief reports, for trainings in this process, and by its import for those in processes of their own."""

import functools
import os
from pathlib import Path

from hitmac.agents.command_line import IMPORTS
from hitmac.agents.training import report

OWN_PROCESS = {"PYTHONPATH": str(Path(__file__).parents[3]), IMPORTS: __name__}
"""Environment of a process whose reports are brief."""


def _cut_short(function, *arguments, **options):
    return function(*arguments, **options | {"max_episode_steps": min(20, options["max_episode_steps"])})


def _nothing(*arguments, **options):
    pass


EVALUATIONS = ("evaluate", "evaluate_executors")
SHORT_EPISODES = {name: functools.partial(_cut_short, getattr(report, name)) for name in EVALUATIONS}
FEW_FILES = {"BASELINES": ("random", "still"), **dict.fromkeys(("save_pictures", "save_curve", "save_film"), _nothing)}

if __name__ in os.environ.get(IMPORTS, ""):
    vars(report).update(SHORT_EPISODES | FEW_FILES)
