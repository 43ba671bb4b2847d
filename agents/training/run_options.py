"""Options of every training: the scene, the seeds, the variations, and where the runs are and train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from hitmac.envs.ranges import Choice, Count, Range
from hitmac.envs.scenario import KNOWLEDGE

Seed = Annotated[int, Range(0, 1_000_000)]

NOT_OF_A_RUN = ("run_dir", "resume", "processes", "ray", "address")
"""Options that say where a training runs: the configuration of the run does not hold them."""


@dataclass(frozen=True)
class RunOptions:
    """Options of every training."""

    scenario: str = "hit-mac"
    """A preset's name (also with sizes: hit-mac-6x9) or the path of a YAML file."""
    knowledge: Annotated[str, Choice(KNOWLEDGE)] | None = None
    """What sensors know of the targets: full, where all are; shared, what any sees; neighbours or own. None: as the
    scenario says."""
    tracks: tuple[str, ...] = ()
    """CSV files of recorded tracks that the targets follow, in place of the scenario's; each episode follows one of
    them."""
    seed: Seed = 0
    """Seed of networks and scenes."""
    seeds: Count = 1
    """Trainings, with the seeds from seed up; of several, each is a run of its own in run_dir/seed-SEED. On the command
    line also as 0..9."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Option to vary, such as pooling=sum,mean; may be given several times, for all combinations. Each is trained with
    every seed, in run_dir/pooling-sum/seed-SEED."""
    processes: Count | None = None
    """Trainings side by side, if there are several; they share the cores. None: as many as there are cores."""
    ray: str | None = None
    """Address of a Ray cluster that trains them instead, such as auto or 10.0.0.1:6379; local starts one. run_dir
    must lie where all its machines reach it by the same path."""
    device: str = "cpu"
    """Device of the networks: cpu, cuda, cuda:1, or auto, an accelerator if there is one. Scenes and planners are
    always on the CPU, and small networks are often faster there."""
    run_dir: Path | None = None
    """Directory of the results, which must not exist. None: runs/ and the date and time."""
    resume: bool = False
    """Go on with the run in run_dir, from its last checkpoint and with its options."""

    @property
    def is_group(self) -> bool:
        """True for a group of trainings, each in a directory of its own."""
        return self.seeds > 1 or bool(self.set)
