"""Options of the jobs whose policy may be shown the nearest targets only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hitmac.agents.learned.extractor import check_lists
from hitmac.agents.nearness import OPTIONS, checked
from hitmac.agents.tracking.belief_observer import BELIEFS
from hitmac.agents.training.options import Options, invalid_options
from hitmac.envs.errors import collect, raise_together
from hitmac.envs.ranges import Count, Positive
from hitmac.envs.scenario import Scenario


@dataclass(frozen=True)
class NearestOptions(Options):
    """Base class of the options of jobs whose policy may be shown the nearest targets only."""

    nearest: Count | None = None
    """Targets that each sensor is shown, the nearest ones, in training and use. None: all in training; in use those of
    a scene of 16384 pairs or more are the nearest 8 within two sensing ranges."""
    radius: Positive | None = None
    """Farthest distance of these targets, in the scenario's units. None: any."""
    neighbours: Count | None = None
    """Sensors near each sensor that it attends to with --attend-over agents. None: all."""

    def check(self) -> None:
        """See :meth:`Options.check`."""
        errors: list[Exception] = []
        with collect(errors):
            super().check()
        errors += map(ValueError, self._nearness_problems())
        raise_together(errors)

    def _nearness_problems(self) -> Iterator[str]:
        invalid = invalid_options(self)
        if self.nearest is None:
            for name in ("radius", "neighbours"):
                if getattr(self, name) is not None and name not in invalid:
                    yield f"--{name} is {getattr(self, name)}; it needs --nearest"
            return
        if getattr(self, "memory", "none") != "none" or tuple(self.features) == BELIEFS:
            yield f"--nearest is {self.nearest}; a policy with a memory or beliefs is shown all targets"
        if not self.problems():
            try:
                check_lists(self.encoder_config)
            except ValueError as error:
                yield f"--nearest is {self.nearest}; {error}"

    @property
    def nearness(self) -> dict[str, Any]:
        """See :attr:`Options.nearness`."""
        return checked({name: getattr(self, name) for name in OPTIONS})

    def environment_options(self, scenario: Scenario) -> dict[str, Any]:
        """See :meth:`Options.environment_options`."""
        return super().environment_options(scenario) | self.nearness
