r"""Proximal policy optimisation with a reward, a value and a ratio of every sensor, as an algorithm of SB3's kind.

Source: Schulman and others, "Proximal Policy Optimization Algorithms", 2017. What is not in it:

**Credit.** With one reward for the team, the effect of one sensor is lost among that of the others. With
``credit="difference_rewards"`` of policy and environments every sensor i has its own reward :math:`r_i`, value
:math:`V_i`, ratio :math:`\rho_i = \pi(a_i | s) / \pi_{old}(a_i | s)` and advantage :math:`A_i`, and

.. math:: loss = -\mathrm{mean}_i \min(\rho_i A_i, \mathrm{clip}(\rho_i, 1 - c, 1 + c) A_i) + \dots

**Absent sensors.** A sensor that is absent or has failed has the weight 0 in every mean, and its trajectory ends where
it stops working.

**Values.** The critic's output is the value in units of the returns' deviation from their mean, both running. Returns
are often some 30 in size, and without this the critic's gradient drowns the actor's where their norm is clipped.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from hitmac.agents.learned.policy import AttentionPolicy
from hitmac.agents.learned.recurrent import RecurrentPolicy, works
from hitmac.agents.policy import one_thread_each
from hitmac.agents.training.parts import in_parallel, learn_from

_KEPT = 0.9  # share of the running mean and deviation that a rollout leaves


class Rollout:
    """T steps of B rows, as tensors on one device.

    ``observations`` and ``steps`` hold tensors (T, B, ...) by name. Those of ``steps`` are ``actions``, and for each of
    k sensors, or k = 1, ``log_probs``, ``values``, ``rewards``, ``weights``, ``advantages`` and ``returns``. The
    arguments are those of Stable-Baselines3's buffers.
    """

    def __init__(self, *_: Any, gamma: float, gae_lambda: float, **__: Any) -> None:
        self.gamma, self.gae_lambda = gamma, gae_lambda
        self.observations: dict[str, Tensor] = {}
        self.steps: dict[str, Tensor] = {}

    def fill(self, observations: list[dict[str, Tensor]], steps: list[dict[str, Tensor]], last: Tensor) -> None:
        """Take the steps of a rollout, and the values (B, k) after it; compute advantages and returns.

        Of each step, ``acting`` (B, k) bool are the sensors that act, ``goes_on`` (B, k) bool those that act after it
        too in the same episode, and ``terminated`` (B, 1) bool the rows whose episode ends without a time limit.
        """
        self.observations = {name: torch.stack([one[name] for one in observations]) for name in observations[0]}
        found = {name: torch.stack([one[name] for one in steps]) for name in steps[0]}
        values = torch.cat((found["values"], last[None]))
        found["advantages"] = advantages_of(
            found["rewards"], values, found["goes_on"], found["terminated"], self.gamma, self.gae_lambda
        )
        found["returns"] = found["advantages"] + found["values"]
        acting = found["acting"].float()
        found["weights"] = acting / acting.mean().clamp(min=1e-6)
        self.steps = found


def advantages_of(
    rewards: Tensor, values: Tensor, goes_on: Tensor, terminated: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    r"""Return generalised advantage estimates (T, B, k), given values (T + 1, B, k).

    .. math:: A_t = \delta_t + \gamma \lambda A_{t+1}, \qquad \delta_t = r_t + \gamma V_{t+1} - V_t

    Where a trajectory does not go on, at a time limit or where a sensor stops working, :math:`V_t` stands for
    :math:`V_{t+1}` and the sum ends; where the episode has terminated, 0 does. Source: Schulman and others,
    "High-Dimensional Continuous Control Using Generalized Advantage Estimation", ICLR 2016.
    """
    following = torch.where(goes_on, values[1:], values[:-1]) * ~terminated
    deltas = rewards + gamma * following - values[:-1]
    advantages, sums = torch.empty_like(deltas), torch.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        sums = deltas[t] + gamma * gae_lambda * goes_on[t] * sums
        advantages[t] = sums
    return advantages


def _moments(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted mean and deviation of values; the mean of the weights is 1."""
    mean = (values * weights).mean()
    return mean, ((values - mean).square() * weights).mean().sqrt()


class PPO(stable_baselines3.PPO):
    """Stable-Baselines3's PPO with credit for every sensor and normalised values; see the module.

    It differs further in that advantages are normalised over the rollout instead of the minibatch, and the rows that
    are left over after the last whole minibatch of an epoch are not used. On a CPU two threads share each batch; the
    result does not depend on them. Nothing is read from another device within an update.

    Args:
        policy, env: an :class:`~hitmac.agents.learned.policy.AttentionPolicy`, and environments. With
            ``credit="difference_rewards"`` of both, rewards, values and ratios are those of every sensor.
        normalize_values: learn values in units of the returns' running deviation from their running mean.
        critic_apart: let the critic's loss not change the encoder, for a policy that starts from another one: its
            features, found by imitation, would lose what the actor reads from them.
        compiled: compile the loss by ``torch.compile``, and on a CUDA device capture it in graphs. All minibatches have
            the same shapes.
        **options: those of ``stable_baselines3.PPO``, but for `use_sde`, `target_kl`, `clip_range_vf` and buffers.

    Raises:
        ValueError: an option that is not supported, or credits of environments and policy that differ.
    """

    policy: AttentionPolicy
    rollout_buffer: Rollout  # type: ignore[assignment]
    overdue: Callable[[], bool] = staticmethod(lambda: False)
    """Returns True if the rest of an update is to be left out, as at a time limit."""

    def __init__(
        self,
        policy: Any,
        env: Any,
        *,
        normalize_values: bool = True,
        critic_apart: bool = False,
        compiled: bool = False,
        **options: Any,
    ) -> None:
        if given := [name for name in ("use_sde", "target_kl", "clip_range_vf") if options.get(name)]:
            raise ValueError(f"{' and '.join(given)} cannot be given; this PPO supports none of them")
        self.normalize_values, self.critic_apart, self.compiled = normalize_values, critic_apart, compiled
        super().__init__(policy, env, rollout_buffer_class=Rollout, **options)  # type: ignore[arg-type]

    def _setup_model(self) -> None:
        super()._setup_model()
        # Before any return is known, all values are 0.
        scale = [0.0, 0.0 if self.normalize_values else 1.0]
        self.value_mean, self.value_deviation = torch.tensor(scale, device=self.device)
        self._sums: Any = self._sums_of
        self._heads: Any = self._heads_of
        if self.compiled:
            mode = "reduce-overhead" if self.device.type == "cuda" else "default"
            self._sums = torch.compile(self._sums_of, mode=mode)
            self._heads = torch.compile(self._heads_of, mode=mode)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_sums", "_heads"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        states, tensors = super()._get_torch_save_params()
        return states, [*tensors, "value_mean", "value_deviation"]

    def collect_rollouts(self, env: VecEnv, callback: BaseCallback, rollout_buffer: Any, n_rollout_steps: int) -> bool:
        """Collect a rollout of the policy; see Stable-Baselines3."""
        self.policy.set_training_mode(False)
        callback.on_rollout_start()
        observations: list[dict[str, Tensor]] = []
        steps: list[dict[str, Tensor]] = []
        with ThreadPoolExecutor(1) as threads, one_thread_each(), torch.no_grad():
            observation = self._observed()
            acting = self._acting(env, observation)
            for _ in range(n_rollout_steps):
                logits, values = self._judge(observation, threads)
                choice = self.policy.distribution_of(logits)
                actions = choice.sample()
                taken = actions.reshape(-1, *(self.action_space.shape or ())).cpu().numpy()
                found, rewards, dones, infos = env.step(taken)
                self._last_obs, self._last_episode_starts = found, dones  # type: ignore[assignment]
                self.num_timesteps += env.num_envs
                callback.update_locals({"rewards": rewards, "new_obs": found, "dones": dones, "infos": infos})
                if not callback.on_step():
                    return False
                ended = np.flatnonzero(dones)
                self._update_info_buffer([infos[row] for row in ended], dones[ended])
                observations.append(observation)
                step = {"actions": actions, "values": values, "acting": acting}
                step["log_probs"] = choice.log_prob(actions).reshape(len(values), -1)
                step["rewards"] = self._tensor(rewards.reshape(len(rewards), -1))
                if not step["rewards"].shape == values.shape == acting.shape:
                    shapes = f"rewards are {tuple(step['rewards'].shape)}, values {tuple(values.shape)}"
                    raise ValueError(f"{shapes}; environments and policy must have the same credit")
                terminated = dones.copy()
                terminated[ended] = [not infos[row].get("TimeLimit.truncated", False) for row in ended]
                step["terminated"] = self._tensor(terminated[:, None])
                observation = self._observed()
                acting = self._acting(env, observation)
                step["goes_on"] = acting & ~self._tensor(dones[:, None])
                steps.append(step)
            last = self._judge(observation, threads, last=True)[1]
        rollout_buffer.fill(observations, steps, last)
        callback.on_rollout_end()
        return True

    def train(self) -> None:
        """Update the policy by the last rollout; see Stable-Baselines3."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        self._clip = self.clip_range(self._current_progress_remaining)  # type: ignore[operator]
        steps = self.rollout_buffer.steps
        if self.normalize_advantage:
            mean, deviation = _moments(steps["advantages"], steps["weights"])
            steps["advantages"] = (steps["advantages"] - mean) / (deviation + 1e-8)
        if self.normalize_values:
            self._follow(steps["returns"], steps["weights"])
        steps["targets"] = (steps["returns"] - self.value_mean) / (self.value_deviation + 1e-8)
        self._logged: list[Tensor] = []
        with ThreadPoolExecutor(1) as threads, one_thread_each():
            for rows in (rows for _ in range(self.n_epochs) for rows in self._minibatches()):
                parts = [rows[one] for one in self._slices(len(rows))]
                learn_from(parts, self._loss, self.policy, self.max_grad_norm, threads)
                self._n_updates += 1
                if self.overdue():
                    break
        means = torch.stack(self._logged).mean(0).tolist()
        for name, value in zip(("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl"), means, strict=True):
            self.logger.record(f"train/{name}", value)
        self.logger.record("train/value_deviation", float(self.value_deviation))
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    # A rollout.

    def _observed(self) -> dict[str, Tensor]:
        """Return the last observation on the device."""
        return {name: self._tensor(array) for name, array in self._last_obs.items()}  # type: ignore[union-attr]

    def _tensor(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def _acting(self, env: Any, observation: dict[str, Tensor]) -> Tensor:
        """Return True (B, k) for sensors whose actions count: they work and, in a whole scene, have a valid pair."""
        working = env.acting() if hasattr(env, "acting") else np.ones(env.num_envs, np.bool_)
        acting, mask = self._tensor(working.reshape(len(working), -1)), observation.get("mask")
        if mask is None or mask.ndim < 3:  # rows of single sensors or targets
            return acting
        seeing = mask.bool().any(-1)
        return acting & (seeing if acting.shape == seeing.shape else seeing.any(-1, keepdim=True))

    def _judge(
        self, observation: dict[str, Tensor], threads: ThreadPoolExecutor, *, last: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return the output of the actor's head and the values (B, k) of an observation, the `last` of a rollout."""

        def judged(rows: slice) -> tuple[Tensor, Tensor]:
            with torch.no_grad():  # of this thread
                return self._heads({name: one[rows] for name, one in observation.items()})

        found = in_parallel(threads, judged, self._slices(len(next(iter(observation.values())))))
        logits, values = (torch.cat(parts) for parts in zip(*found, strict=True))
        return logits, self._denormalized(values)

    def _heads_of(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the output of the actor's head and the values, as learnt, of an observation."""
        encoded = self.policy.encode(observation)
        return self.policy.action_net(*encoded), self.policy.value_net(*encoded)

    def _slices(self, number: int) -> list[slice]:
        if self.device.type != "cpu" or self.compiled or number == 1:
            return [slice(None)]
        return [slice(0, number // 2), slice(number // 2, number)]

    # Values.

    def _follow(self, returns: Tensor, weights: Tensor) -> None:
        """Let the running mean and deviation follow the returns of a rollout."""
        mean, deviation = _moments(returns, weights)
        kept = _KEPT if self._n_updates else 0.0
        self.value_mean = kept * self.value_mean + (1 - kept) * mean
        self.value_deviation = kept * self.value_deviation + (1 - kept) * deviation

    def _denormalized(self, values: Tensor) -> Tensor:
        return values * self.value_deviation + self.value_mean

    # An update.

    def _minibatches(self) -> list[Tensor]:
        """Return the rows of the minibatches of an epoch, in random order."""
        total = self.rollout_buffer.steps["values"][..., 0].numel()
        size = min(self.batch_size, total)
        return self._shuffled(total, size)

    def _shuffled(self, total: int, size: int) -> list[Tensor]:
        """Return the numbers below `total` in batches, in an order that depends on the seed and the updates so far."""
        order = torch.Generator().manual_seed((self.seed or 0) * 2**32 + self._n_updates)  # the same on every device
        chosen = torch.randperm(total, generator=order, device="cpu")[: total // size * size]
        return [rows.to(self.device) for rows in chosen.split(size)]

    def _of(self, name: str, rows: Tensor) -> Tensor:
        """Return some rows of the rollout (S, ...)."""
        return self.rollout_buffer.steps[name].flatten(0, 1)[rows]

    def _seen(self, rows: Tensor) -> dict[str, Tensor]:
        """Return what the policy observed in some rows."""
        return {name: one.flatten(0, 1)[rows] for name, one in self.rollout_buffer.observations.items()}

    def _evaluated(self, seen: dict[str, Tensor], actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values, likelihoods and entropies of actions."""
        return self.policy.evaluate_features(*self.policy.encode(seen), actions, critic_apart=self.critic_apart)  # type: ignore

    def _loss(self, rows: Tensor) -> tuple[Tensor, int]:
        """Return the loss, summed over the sensors of some rows, and their number."""
        batch = {name: self._of(name, rows) for name in ("actions", "weights", "advantages", "log_probs", "targets")}
        sums, number = self._sums(self._seen(rows), **batch), batch["weights"].numel()
        self._logged.append(sums.detach() / number)
        return sums[0] + self.vf_coef * sums[1] + self.ent_coef * sums[2], number

    def _sums_of(
        self,
        seen: dict[str, Tensor],
        *,
        actions: Tensor,
        weights: Tensor,
        advantages: Tensor,
        log_probs: Tensor,
        targets: Tensor,
    ) -> Tensor:
        """Return the weighted sums (4,) of the losses of policy, value and entropy, and of the divergence."""
        values, now, entropies = (one.reshape(weights.shape) for one in self._evaluated(seen, actions))
        change = now - log_probs
        ratio = change.exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(1 - self._clip, 1 + self._clip) * advantages)
        parts = torch.stack((-gain, (values - targets).square(), -entropies, (ratio - 1) - change))
        return (parts * weights).flatten(1).sum(1)

    # Resuming.

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the running mean and deviation of the returns, for a training that continues."""
        return {"value_scale": torch.stack((self.value_mean, self.value_deviation)).cpu().numpy()}

    def set_state(self, state: Any) -> None:
        """Restore the result of :meth:`get_state`."""
        self.value_mean, self.value_deviation = torch.from_numpy(state["value_scale"]).to(self.device)


class RecurrentPPO(PPO):
    """PPO of a :class:`~hitmac.agents.learned.recurrent.RecurrentPolicy`, by backpropagation through a rollout.

    A minibatch has the whole rollouts of some scenes, of ``batch_size`` steps in all. A sensor acts while it works,
    also where it knows no target yet.
    """

    policy: RecurrentPolicy

    def _setup_model(self) -> None:
        super()._setup_model()
        n, m, _ = self.observation_space["pairs"].shape  # type: ignore[index]
        width = self.policy.features_extractor.memory.width
        self._state = torch.zeros(self.n_envs, n, m, width, device=self.device)  # the policy's

    def collect_rollouts(self, *args: Any, **options: Any) -> bool:
        """See :meth:`PPO.collect_rollouts`."""
        self._state_before = self._state
        return super().collect_rollouts(*args, **options)

    def _observed(self) -> dict[str, Tensor]:
        starts = self._tensor(np.asarray(self._last_episode_starts, np.bool_))
        return {"pairs": self._tensor(self._last_obs["pairs"]), "starts": starts}  # type: ignore[index]

    def _acting(self, env: Any, observation: dict[str, Tensor]) -> Tensor:
        working = works(observation["pairs"])
        return working if self.policy.credit == "difference_rewards" else working.any(-1, keepdim=True)

    def _judge(self, observation: dict[str, Tensor], threads: Any, *, last: bool = False) -> tuple[Tensor, Tensor]:
        pairs, starts = observation["pairs"][None], observation["starts"][None]
        features, mask, state = self.policy.features_extractor.unroll(pairs, self._state, starts)
        self._state = self._state if last else state
        return self.policy.action_net(features, mask), self._denormalized(self.policy.value_net(features, mask))

    def _minibatches(self) -> list[Tensor]:
        steps, scenes = self.rollout_buffer.steps["values"].shape[:2]
        size = min(max(1, self.batch_size // steps), scenes)
        return self._shuffled(scenes, size)

    def _of(self, name: str, rows: Tensor) -> Tensor:
        return self.rollout_buffer.steps[name][:, rows].flatten(0, 1)

    def _seen(self, rows: Tensor) -> dict[str, Tensor]:
        seen = {name: one[:, rows] for name, one in self.rollout_buffer.observations.items()}
        return seen | {"state": self._state_before[rows]}

    def _evaluated(self, seen: dict[str, Tensor], actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features, mask, _ = self.policy.features_extractor.unroll(seen["pairs"], seen["state"], seen["starts"])
        return self.policy.evaluate_features(features, mask, actions, critic_apart=self.critic_apart)  # type: ignore

    def get_state(self) -> dict[str, np.ndarray]:
        """See :meth:`PPO.get_state`; with the policy's state."""
        return super().get_state() | {"state": self._state.cpu().numpy()}

    def set_state(self, state: Any) -> None:
        """See :meth:`PPO.set_state`."""
        super().set_state(state)
        self._state = torch.from_numpy(state["state"]).to(self.device)
