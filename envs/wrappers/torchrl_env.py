"""TorchRL environment: a batch of scenes as one native EnvBase."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from hitmac.envs.tasks import Task
from hitmac.envs.tasks.base import decisions_of, rows_of_sensors
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
        for name, spec in self._specs(made, scenes).items():
            setattr(self, name, spec.clone().to(self.device))

    def _specs(self, made: Task, scenes: int) -> dict[str, Any]:
        space, shape = made.action_space, torch.Size([scenes, *made.action_space.shape])  # type: ignore[misc]
        chosen = Categorical(made.choices[0] + 1, shape) if made.turning else Binary(shape=shape, dtype=torch.int64)
        yes_or_no, number = Binary(shape=(scenes, 1), dtype=torch.bool), Unbounded((scenes, 1), dtype=torch.float32)
        rates = {name: number for name in RATES if name in made.info()}
        return {
            "observation_spec": Composite(
                {key: _spec(space, scenes) for key, space in made.observation_space.items()} | rates, shape=(scenes,)
            ),
            "action_spec": _spec(space, scenes) if isinstance(space, spaces.Box) else chosen,
            "reward_spec": number,
            "full_done_spec": Composite(done=yes_or_no, terminated=yes_or_no, truncated=yes_or_no, shape=(scenes,)),
        }

    def _set_seed(self, seed: int | None) -> None:
        self._seed = seed

    def _reset(self, tensordict: TensorDictBase | None = None, **places: Any) -> TensorDictBase:
        chosen = None if tensordict is None else tensordict.get("_reset", None)
        if chosen is not None and not chosen.all():
            self.task.reset(mask=chosen.flatten().numpy(force=True), **places)
        else:
            self.task.reset(**{"seed": self._seed, **places})
            self._seed = None
        self._show()
        return TensorDict(self._observed(), self.batch_size, device=self.device)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        reward = self.task.step(tensordict["action"].numpy(force=True))
        self._show()
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


class GroupedTorchRLEnv(DirectionalSensorTorchRLEnv):
    """The same scenes with the keys of TorchRL's multi-agent classes and of BenchMARL: the sensors are one group.

    | key | tensor | meaning |
    |---|---|---|
    | `sensors`, `observation` | (B, n, m (d + 1)) float32 | for each target its features times its mask, and its mask |
    | `sensors`, `action_mask` | (B, n, 3^k) bool | a sensor without a target, or that fails, can only choose 0; only \
where this can be, with choices |
    | `sensors`, `info` | (B, n, 1) float32 | `coverage` and `rotation` of the scene |
    | `state` | (B, n m (d + 1)) float32 | the observations of all sensors |
    | `sensors`, `action` | (B, n) int64 | sum of c_i 3^i over the k decisions c_i of a sensor, 0 to 2 each; or if \
`continuous` (B, n, k) float32 from -1 to 1, rounded to 0 stay, 1 left, -1 right |
    | `sensors`, `reward` | (B, n, 1) float32 | the task's reward, the same for all sensors |
    | `done`, `terminated`, `truncated` | (B, 1) bool | as above |

    Args:
        task, num_envs, scenario, max_episode_steps, device, options: see :class:`DirectionalSensorTorchRLEnv`; the task
            turns sensors, whose number is that of the scenario, or fewer with an action mask.
        continuous: actions are numbers, which are rounded.
    """

    def __init__(self, *scene: Any, continuous: bool = False, **options: Any) -> None:
        self.continuous = continuous
        super().__init__(*scene, **options)

    def _specs(self, made: Task, scenes: int) -> dict[str, Any]:
        if made.observation_space.keys() != {"pairs", "mask"} or not isinstance(
            made.action_space, spaces.MultiDiscrete
        ):
            seen = ", ".join(made.observation_space.keys())
            raise ValueError(
                f"{made.spec.name} in scenario {made.scenario.name!r} observes {seen} and chooses from "
                f"{made.action_space}; the sensors of a group observe pairs and mask, and choose turns"
            )
        n, m, d = made.observation_space["pairs"].shape
        count = self.decisions = made.action_space.shape[0] // n
        self.masked = not self.continuous and (made.scenario.varies or made.scenario.knowledge != "full")
        number, own = Unbounded((scenes, n, 1)), (scenes, n)
        observed = {
            "observation": Unbounded((*own, m * (d + 1))),
            "info": Composite(coverage=number, rotation=number, shape=own),
        } | ({"action_mask": Binary(shape=(*own, 3**count), dtype=torch.bool)} if self.masked else {})
        action = Bounded(-1.0, 1.0, (*own, count)) if self.continuous else Categorical(3**count, own)
        parts = {"observation_spec": observed, "action_spec": {"action": action}, "reward_spec": {"reward": number}}
        specs = {name: Composite(sensors=Composite(part, shape=own), shape=(scenes,)) for name, part in parts.items()}
        specs["observation_spec"]["state"] = Unbounded((scenes, n * m * (d + 1)))
        return super()._specs(made, scenes) | specs

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        chosen = decisions_of(tensordict["sensors", "action"].numpy(force=True), self.decisions)
        after = super()._step(TensorDict({"action": self.task.joint_action(chosen)}, self.batch_size))
        after["sensors", "reward"] = after.pop("reward").unsqueeze(1).expand((*chosen.shape[:2], 1))
        return after

    def _observed(self) -> dict[str, Any]:
        seen = torch.as_tensor(rows_of_sensors(self.task.observe()))
        rates = self.task.info()["coverage"], self.task.simulator.rotation
        info = {
            name: torch.as_tensor(rate).float()[:, None, None].expand(*seen.shape[:2], 1)
            for name, rate in zip(("coverage", "rotation"), rates, strict=True)
        }
        sensors = {"observation": seen, "info": TensorDict(info, seen.shape[:2])}
        if self.masked:
            allowed = torch.as_tensor(self.task.simulator.acting)[..., None].repeat(1, 1, 3**self.decisions)
            allowed[..., 0] = True
            sensors["action_mask"] = allowed
        return {"sensors": TensorDict(sensors, seen.shape[:2]), "state": seen.flatten(1)}


def _spec(space: spaces.Space, scenes: int) -> Bounded | Binary:
    """Return the spec of one array of an observation of some scenes."""
    if isinstance(space, spaces.MultiBinary):
        return Binary(shape=(scenes, *space.shape), dtype=torch.bool)
    assert isinstance(space, spaces.Box)
    low, high = (torch.as_tensor(bound).expand(scenes, *bound.shape) for bound in (space.low, space.high))
    return Bounded(low, high, dtype=low.dtype)
