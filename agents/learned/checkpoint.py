"""Policies as folders: ``policy.safetensors`` and ``config.json``. Loading one never runs code.

The folder of a coordinator holds that of its executor, ``executor/``.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import safetensors.torch
from gymnasium import spaces
from torch import nn

from hitmac.agents.learned.attention_policy import AttentionPolicy
from hitmac.agents.learned.groups import check_single
from hitmac.agents.learned.policy_config import POLICY_DEFAULTS, PolicyConfig
from hitmac.agents.learned.tensors import check_size, put_tensors, read_tensors, tensor_file, tensors_of
from hitmac.agents.tracking.belief_observer import space_of
from hitmac.envs.assigned_observation import goals_space
from hitmac.envs.errors import in_short, shortly
from hitmac.envs.files import parse_json, read_text, whole_file, write_text
from hitmac.envs.load import from_portable, load_scenario, portable
from hitmac.envs.renames import current_options
from hitmac.envs.scenario import Scenario
from hitmac.envs.tasks import own_observation_space, own_turning_space
from hitmac.perception.encoder import ENCODERS

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
            options=current_options(plain["options"]),
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
