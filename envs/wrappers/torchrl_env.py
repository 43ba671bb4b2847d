"""TorchRL environment: a batch of scenes as one native EnvBase."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from hitmac.envs.wrappers.shell import Shell

try:
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import Binary, Bounded, Categorical, Composite, Unbounded
    from torchrl.envs import EnvBase
except ModuleNotFoundError:
    raise ModuleNotFoundError("TorchRL environments require TorchRL: pip install 'hitmac[torchrl]'") from None

RATES = ("coverage", "transport")
"""Infos that are part of the observation."""


class DirectionalSensorTorchRLEnv(EnvBase, Shell):
    """Batch of scenes of one task as a ``torchrl.envs.EnvBase`` whose batch size is the number B of scenes.

    | key | tensor | meaning |
    |---|---|---|
    | `pairs`, `mask` | (B, n, m, d) float32, (B, n, m) bool | the observation, see the task's docstring |
    | `targets`, `neighbours` | (B, n, k) and (B, n, l) int32 | with the options `nearest` and `neighbours` only |
    | `discs` | (B, k, 3) float32 | with the option `discs` only |
    | `coverage` | (B, 1) float32 | share of the present targets, by value, that are covered |
    | `transport` | (B, 1) float32 | in duels only: share of the bounties that the targets have received |
    | `action` | (B, k) int64 | the task's action: decisions of the sensors, or an assignment of 0 and 1 |
    | `reward` | (B, 1) float32 | the task's reward |
    | `truncated` | (B, 1) bool | the episode has reached its time limit |
    | `terminated` | (B, 1) bool | all cargoes of a duel have arrived |
    | `done` | (B, 1) bool | one of both |

    With ``action: rate`` of the scenario the action is rates (B, n), float32.

    A reset with the mask ``_reset`` (B, 1) starts new episodes in some of the scenes, for TorchRL's collectors and
    ``rollout(break_when_any_done=False)``. After ``set_seed(seed)`` the next whole reset gives scene i the seed
    ``seed + i``, and it equals the single environment with that seed. The simulator runs on the CPU; tensors are moved
    from and to `device`. ``reset(options=...)`` accepts the options of the gymnasium environments.

    Args:
        task, num_envs, scenario, max_episode_steps, options: see :class:`~hitmac.envs.wrappers.shell.Shell`.
        device: device of the tensors; None: the CPU.
    """

    def __init__(
        self, task: Any, num_envs: int = 1, scenario: Any = None, *, device: Any = None, **options: Any
    ) -> None:
        made = self._set_task(task, scenario, num_envs, **options)
        scenes = made.num_envs
        super().__init__(device=device, batch_size=torch.Size([scenes]))
        self._seed: int | None = None
        space, shape = made.action_space, torch.Size([scenes, *made.action_space.shape])  # type: ignore[misc]
        chosen = Categorical(made.choices[0] + 1, shape) if made.turning else Binary(shape=shape, dtype=torch.int64)
        yes_or_no, number = Binary(shape=(scenes, 1), dtype=torch.bool), Unbounded((scenes, 1), dtype=torch.float32)
        rates = {name: number for name in RATES if name in made.info()}
        specs = {
            "observation_spec": Composite(
                {key: _spec(space, scenes) for key, space in made.observation_space.items()} | rates, shape=(scenes,)
            ),
            "action_spec": _spec(space, scenes) if isinstance(space, spaces.Box) else chosen,
            "reward_spec": number,
            "full_done_spec": Composite(done=yes_or_no, terminated=yes_or_no, truncated=yes_or_no, shape=(scenes,)),
        }
        for name, spec in specs.items():
            setattr(self, name, spec.clone().to(self.device))

    def _set_seed(self, seed: int | None) -> None:
        self._seed = seed

    def _reset(self, tensordict: TensorDictBase | None = None, **places: Any) -> TensorDictBase:
        chosen = None if tensordict is None else tensordict.get("_reset", None)
        if chosen is not None and not chosen.all():
            self.task.reset(mask=chosen.flatten().numpy(force=True), **places)
        else:
            self.task.reset(seed=self._seed, **places)
            self._seed = None
        return TensorDict(self._observed(), self.batch_size, device=self.device)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        reward = self.task.step(tensordict["action"].numpy(force=True))
        done, terminated = self.task.ended(self.max_episode_steps), self.task.terminated
        ends = {"truncated": done & ~terminated, "done": done, "terminated": terminated}
        columns = ends | {"reward": reward.astype(np.float32)}
        shown = {key: torch.as_tensor(array)[:, None] for key, array in columns.items()}
        return TensorDict(self._observed() | shown, self.batch_size, device=self.device)

    def _observed(self) -> dict[str, torch.Tensor]:
        masks = {key for key, space in self.task.observation_space.items() if isinstance(space, spaces.MultiBinary)}
        observed = {key: torch.as_tensor(value) for key, value in self.task.observe().items()}
        info = self.task.info()
        rates = {name: torch.as_tensor(info[name]).float().unsqueeze(-1) for name in RATES if name in info}
        return {key: value.bool() if key in masks else value for key, value in observed.items()} | rates


def _spec(space: spaces.Space, scenes: int) -> Bounded | Binary:
    """Return the spec of one array of an observation of some scenes."""
    if isinstance(space, spaces.MultiBinary):
        return Binary(shape=(scenes, *space.shape), dtype=torch.bool)
    assert isinstance(space, spaces.Box)
    low, high = (torch.as_tensor(bound).expand(scenes, *bound.shape) for bound in (space.low, space.high))
    return Bounded(low, high, dtype=low.dtype)
