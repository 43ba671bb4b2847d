"""Policies as folders: ``policy.safetensors`` and ``config.json``. Loading one never runs code.

The folder of a coordinator holds that of its executor, ``executor/``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from gymnasium import spaces
from torch import nn

from hitmac.agents.learned.policy import AttentionPolicy, check_lists
from hitmac.agents.learned.recurrent import MEMORIES, RECURRENT_FEATURES, RecurrentPolicy
from hitmac.agents.nearness import checked, farthest_reach, is_large, rescaled
from hitmac.agents.tracking.features import BELIEFS, space_of
from hitmac.envs.files import parse_json, read_text, regular_file, whole_file, write_text
from hitmac.envs.observation import goals_space
from hitmac.envs.presets import from_portable, load_scenario, portable
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import TASKS, own_observation_space, own_turning_space
from hitmac.envs.validation import in_short, shortly
from hitmac.perception import EncoderConfig
from hitmac.perception.checks import check_choice
from hitmac.perception.encoder import ENCODERS, take_encoder_config

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def tensors_of(policy: nn.Module) -> dict[str, torch.Tensor]:
    """Return every tensor of the policy once; Stable-Baselines3 lists a shared encoder under three names."""
    return {name: parameter.detach() for name, parameter in policy.named_parameters()}


@contextmanager
def tensor_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path for safetensors to write to, as :func:`hitmac.envs.files.whole_file` does.

    Raises:
        OSError: the file could not be written, which safetensors has an error of its own for.
    """
    try:
        with whole_file(path) as temporary:
            yield temporary
    except safetensors.SafetensorError as error:
        if found := re.search(r"\(os error (\d+)\)|Os { code: (\d+)", str(error)):
            number = int(found[1] or found[2])
            raise OSError(number, os.strerror(number), str(path)) from None
        raise OSError(f"{path}: {error}") from None


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file, or raise ValueError."""
    try:
        return safetensors.torch.load_file(regular_file(path))
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None


def put_tensors(policy: nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Copy `tensors`, read from `path`, into the policy, or raise ValueError and leave it unchanged."""
    own = tensors_of(policy)
    if missing := [name for name in own if name not in tensors]:
        raise ValueError(f"{path} lacks the tensor {missing[0]}")
    if extra := [name for name in tensors if name not in own]:
        raise ValueError(f"{path} holds the tensor {extra[0]}, which the policy does not have")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise ValueError(f"{path}: {name} has shape {tuple(tensor.shape)}; it must be {tuple(own[name].shape)}")
        if tensor.dtype not in _FLOATS or not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} holds something that is not a finite number")
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def check_size(encoder: EncoderConfig, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Raise ValueError if the tensors are too few or too small for the network, before it is made."""
    longest = max((max(tensor.shape, default=1) for tensor in tensors.values()), default=0)
    layers, width = encoder.embed_layers + encoder.num_blocks, max(encoder.weight_dim, encoder.num_frequencies)
    if layers > len(tensors) or width > longest:
        raise ValueError(
            f"{path} holds {len(tensors)} tensors of at most {longest} rows or columns; config.json describes a "
            f"network of {layers} layers and the width {width}"
        )


POLICY_DEFAULTS = {"critic": None, "credit": "team", "memory": "none"}
"""Options of a policy other than those of the encoder."""

NEAREST, REACHES = 8, 2.0
"""Most targets of a sensor that a policy is shown in a large scene, and their farthest distance in sensing ranges."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """Policy metadata: all that a checkpoint holds but tensors."""

    policy: dict[str, Any]
    """Keyword arguments of :class:`hitmac.agents.learned.policy.AttentionPolicy`: the encoder's options, as
    ``encoder_config`` or each by its name, ``critic`` and ``credit``; and ``memory``, which is ``"none"``, or
    ``"recurrent"`` for a :class:`hitmac.agents.learned.recurrent.RecurrentPolicy`."""
    features: tuple[str, ...]
    """The observation features that it was trained on, in order, or
    :data:`hitmac.agents.tracking.features.BELIEFS`."""
    scenario: Scenario
    """The scenario that it was trained on."""
    training_seeds: tuple[int, int]
    """First and last seed of the scenes that it was trained on."""
    task: str = "Coverage"
    """Task that it was trained for, a name in :data:`hitmac.envs.TASKS`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the task that its :class:`hitmac.envs.tasks.TaskSpec` lists; those left out have their defaults."""
    nearness: dict[str, Any] = field(default_factory=dict)
    """Options of :class:`hitmac.envs.observation.Observer` for the nearest targets, by name: ``nearest``, ``radius`` in
    the scenario's units, ``neighbours``; {}: it observes all."""

    def __post_init__(self) -> None:
        check_choice("task", self.task, TASKS)
        known = TASKS[self.task].spec.options
        if not isinstance(self.options, dict) or not set(self.options) <= set(known):
            raise ValueError(f"options is {self.options!r}; for {self.task} it may hold {', '.join(known)}")
        object.__setattr__(self, "options", {**known, **self.options})
        rest = dict(self.policy) if isinstance(self.policy, dict) else {}
        encoder = take_encoder_config(rest)
        if not isinstance(self.policy, dict) or not set(rest) <= set(POLICY_DEFAULTS):
            allowed = [field.name for field in dataclasses.fields(encoder)] + list(POLICY_DEFAULTS)
            raise ValueError(f"policy is {self.policy!r}; it may hold {', '.join(allowed)}")
        memory = rest.get("memory", "none")
        check_choice("memory", memory, MEMORIES)
        if memory == "recurrent" and (self.role != "agent" or self.options.get("per_sensor")):
            raise ValueError("memory is 'recurrent'; it is for a policy that turns all sensors directly")
        if memory == "recurrent" and self.features != RECURRENT_FEATURES:
            raise ValueError(
                f"features is {self.features!r}; with the memory 'recurrent' it must be {RECURRENT_FEATURES}"
            )
        object.__setattr__(self, "policy", {"encoder_config": encoder} | POLICY_DEFAULTS | rest)
        object.__setattr__(self, "nearness", checked(self.nearness))
        if self.nearness and not self.can_list:
            raise ValueError(f"nearness is {self.nearness!r}; it must be empty, since {self._needs_all}")

    @property
    def _needs_all(self) -> str:
        """Words that say why the policy needs the observations of all targets; "" if it does not."""
        if self.role != "agent":
            return f"a policy for {self.task} is shown all targets"
        if self.policy.get("memory", "none") != "none":
            return "a recurrent memory is one of every pair"
        if self.features == BELIEFS:
            return "beliefs are of all targets"
        try:
            check_lists(self.encoder)
        except ValueError as error:
            return str(error)
        return ""

    @property
    def can_list(self) -> bool:
        """The policy can be shown the nearest targets only."""
        return not self._needs_all

    def shown(self, scenario: Scenario, nearness: Mapping[str, Any]) -> PolicyConfig:
        """Return the metadata of the policy in use on a scenario, with the nearest targets that it is shown there.

        They are those of `nearness`, if given, else those of its training. A policy that was trained on all targets is
        shown the nearest 8 within two sensing ranges if the scenario is large.
        """
        if not nearness and not (nearness := rescaled(self.nearness, self.scenario, scenario)):
            large = is_large(scenario) and self.can_list
            nearness = {"nearest": NEAREST, "radius": REACHES * farthest_reach(scenario)} if large else {}
        return dataclasses.replace(self, nearness=dict(nearness))

    @property
    def encoder(self) -> EncoderConfig:
        """Options of the policy's encoder."""
        return self.policy["encoder_config"]

    @property
    def kind(self) -> type[AttentionPolicy]:
        """Class of the policy."""
        return RecurrentPolicy if self.policy["memory"] == "recurrent" else AttentionPolicy

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the policy."""
        return {name: value for name, value in self.policy.items() if name != "memory"}

    @property
    def role(self) -> str:
        """Role of the policy; see :class:`hitmac.envs.tasks.TaskSpec`."""
        return TASKS[self.task].spec.role


SEED = "seed-"
"""Beginning of the folders of trainings with several seeds in the directory of all."""


def trainings_in(folder: str | Path) -> list[Path]:
    """Return the runs in the directory of several trainings, by seed; none for the directory of one run."""
    found = [path for path in Path(folder).glob(f"{SEED}*") if (path / "config.yaml").is_file()]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def variations_in(folder: str | Path) -> list[Path]:
    """Return the directories of the variations in the directory of a group, by name; none for any other."""
    if not (Path(folder) / "config.yaml").is_file():
        return []
    return sorted(path for path in Path(folder).iterdir() if path.is_dir() and trainings_in(path))


def check_single(folder: str | Path) -> None:
    """Raise ValueError if a directory holds several trainings."""
    for kind, several in (("trainings", trainings_in(folder)), ("variations", variations_in(folder))):
        if several:
            raise ValueError(f"{folder} holds {len(several)} {kind}; name one of them, such as {several[0]}")


FORMAT = "hitmac-policy"
VERSION = 3
EXECUTOR = "executor"
"""The folder of an executor in that of the coordinator that was trained with it."""
_KEYS = {"format", "version", "task", "policy", "features", "scenario", "training_seeds", "options"}


def build_policy(config: PolicyConfig, scenario: Scenario, learning_rate: float = 1e-3) -> AttentionPolicy:
    """Return a fresh policy for `scenario`; its tensors fit any n and m if its encoder does."""
    space = space_of(scenario, config.features, **config.nearness)
    # What a policy decides on, its own scenario says.
    actions: spaces.Space = spaces.MultiDiscrete([3] * scenario.num_sensors * len(config.scenario.decisions))
    if config.role == "executor" or config.options.get("per_sensor"):
        space = own_observation_space(goals_space(space, config.options.get("padding", "masked")))
        actions = own_turning_space(config.scenario)
    elif config.role == "coordinator":
        actions = spaces.MultiBinary(scenario.num_sensors * scenario.num_targets)
    return config.kind(space, actions, lambda _: learning_rate, **config.arguments)


def save_policy(folder: str | Path, policy: nn.Module, config: PolicyConfig) -> None:
    """Write the policy into `folder`, which is made if need be; each file is written whole or not at all."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "task": config.task,
        "policy": dataclasses.asdict(config.encoder) | {name: config.policy[name] for name in POLICY_DEFAULTS},
        "features": list(config.features),
        "scenario": portable(config.scenario, folder),
        "training_seeds": list(config.training_seeds),
        "options": config.options,
    } | ({"nearness": config.nearness} if config.nearness else {})
    write_text(folder / "config.json", json.dumps(plain, indent=2) + "\n")
    with tensor_file(folder / "policy.safetensors") as temporary:
        safetensors.torch.save_file(tensors_of(policy), temporary)


def _check_fits(folder: Path, config: PolicyConfig, scenario: Scenario) -> None:
    """Raise ValueError if a policy does not fit the scenario.

    A plain network has its n and m built in (or m, for one sensor). A policy that turns the sensors itself decides on
    zooms if the lenses of its own scenario zoom, and on moves if its sensors are on rails, which no other sensors can
    follow. Of an executor these are dropped.
    """
    trained = config.scenario
    for decision, words in (("zoom", "lenses zoom"), ("move", "sensors move")):
        if config.role == "agent" and decision in trained.decisions and decision not in scenario.decisions:
            raise ValueError(
                f"{folder} was trained where {words}; those of the scenario {scenario.name!r} do not {decision}"
            )
    of_one = config.role == "executor" or config.options.get("per_sensor")
    fits = trained.num_targets == scenario.num_targets and (of_one or trained.num_sensors == scenario.num_sensors)
    if not ENCODERS[config.encoder.encoder].any_size and not fits:
        raise ValueError(
            f"{folder} is a plain network for {trained.num_sensors} sensors and {trained.num_targets} targets; "
            f"it does not fit {scenario.num_sensors} and {scenario.num_targets}"
        )


def copy_executor(executor: str, folder: str | Path) -> None:
    """Copy the executor of a run or checkpoint into the checkpoint `folder`."""
    source = executor_folder(executor)
    target = Path(folder) / EXECUTOR
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "policy.safetensors"):
        with whole_file(target / name) as temporary:
            shutil.copyfile(source / name, temporary)


def same_checkpoint(one: str | Path, other: str | Path) -> bool:
    """Return whether two runs or checkpoints hold the same executor, file by file."""
    contents = [
        [(executor_folder(folder) / name).read_bytes() for name in ("config.json", "policy.safetensors")]
        for folder in (one, other)
    ]
    return contents[0] == contents[1]


def executor_folder(folder: str | Path) -> Path:
    """Return the folder of the executor in a run or checkpoint of an executor or a coordinator."""
    folder = checkpoint_folder(folder)
    return folder / EXECUTOR if (folder / EXECUTOR).is_dir() else folder


def load_policy(
    folder: str | Path, scenario: Scenario | str | None = None, **nearness: Any
) -> tuple[AttentionPolicy, PolicyConfig]:
    """Load a policy onto PyTorch's default device, which ``with torch.device("cuda"):`` sets.

    Args:
        folder: a checkpoint's folder, or a run directory that holds one as ``checkpoint/`` (a whole HiT-MAC's: as
            ``coordinator/checkpoint/``).
        scenario: the scenario to use it on; None: the one that it was trained on.
        **nearness: options of :class:`hitmac.envs.observation.Observer` for the nearest targets; without any, see
            :meth:`PolicyConfig.shown`. The metadata returned hold them.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: a file is damaged or is no checkpoint of this program; the message names file and reason. Or the
            directory holds several trainings.
    """
    check_single(folder)
    folder = checkpoint_folder(folder)
    for name in ("config.json", "policy.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} is not a checkpoint: it has no {name}")
    config = _read_config(folder / "config.json")
    if scenario is not None or nearness:
        scenario = config.scenario if scenario is None else load_scenario(scenario)
        config = config.shown(scenario, nearness)
    scenario = config.scenario if scenario is None else scenario
    _check_fits(folder, config, scenario)
    path = folder / "policy.safetensors"
    tensors = read_tensors(path)
    check_size(config.encoder, tensors, path)
    policy = build_policy(config, scenario)
    put_tensors(policy, tensors, path)
    policy.set_training_mode(False)
    return policy, config


def checkpoint_folder(folder: str | Path) -> Path:
    """Return the checkpoint in the folder of a run (of both levels: the coordinator's), or the folder itself."""
    folder = Path(folder)
    if (folder / "coordinator").is_dir():
        folder = folder / "coordinator"
    return folder / "checkpoint" if (folder / "checkpoint").is_dir() else folder


def _read_config(path: Path) -> PolicyConfig:
    try:
        plain = parse_json(read_text(path))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ValueError(f'{path} is not the configuration of a policy: its "format" must be {FORMAT!r}')
    version = plain.get("version")
    if version not in (1, 2, VERSION):
        raise ValueError(f"{path} has version {shortly(version)}; this program reads versions 1 to {VERSION}")
    if version != VERSION:
        plain = _upgraded(plain)
    if set(plain) - {"nearness"} != _KEYS:
        raise ValueError(f"{path} has the keys {in_short(plain)}; it must have {', '.join(sorted(_KEYS))}")
    try:
        seeds, shown = plain["training_seeds"], shortly(plain["training_seeds"])
        if not isinstance(seeds, list) or len(seeds) != 2 or not all(type(one) is int for one in seeds):
            raise ValueError(f"training_seeds is {shown}; it must be the first and the last seed, whole numbers")
        if not 0 <= seeds[0] <= seeds[1] < 2**64:
            raise ValueError(f"training_seeds is {shown}; it must be from 0 up, and the last not under the first")
        if not isinstance(plain["features"], list) or not all(isinstance(one, str) for one in plain["features"]):
            raise ValueError(f"features is {shortly(plain['features'])}; it must be a list of names")
        return PolicyConfig(
            policy=plain["policy"],
            features=tuple(plain["features"]),
            scenario=from_portable(plain["scenario"], path.parent),
            training_seeds=(seeds[0], seeds[1]),
            task=plain["task"],
            options=plain["options"],
            nearness=plain.get("nearness", {}),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _upgraded(plain: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of an earlier version in the form of this one."""
    if plain["version"] == 1:  # when there was one task
        plain = {**plain, "task": "Coverage", "options": {}}
    policy = plain.get("policy")
    if isinstance(policy, dict) and policy.get("credit") == "sensors":
        plain = {**plain, "policy": {**policy, "credit": "difference_rewards"}}
    return plain


def checked_device(name: str, label: str = "device") -> torch.device:
    """Return the device of a name.

    Args:
        name: ``"cpu"``; ``"cuda"``, ``"cuda:1"``, ``"mps"`` or another of PyTorch's accelerators; ``"auto"``: an
            accelerator if there is one, else the CPU.
        label: name of the argument in the message.

    Raises:
        ValueError: the name is no device's, or this machine, or this build of PyTorch, has none of that name.
    """
    kind, count = _accelerators()
    if name == "auto":
        return torch.device(kind if count else "cpu")
    there = ["cpu", *(f"{kind}:{index}" for index in range(count))]
    if name not in (*there, *([kind] if count else ())):
        raise ValueError(f"{label} is {name}; on this machine it must be auto or one of {', '.join(there)}")
    return torch.device(name)


def _accelerators() -> tuple[str, int]:
    """Return the kind of the accelerators that there are, and their number."""
    if not hasattr(torch, "accelerator"):  # before PyTorch 2.6
        return "cuda", torch.cuda.device_count()
    kind = torch.accelerator.current_accelerator()
    return (kind.type, torch.accelerator.device_count()) if kind and torch.accelerator.is_available() else ("cuda", 0)
