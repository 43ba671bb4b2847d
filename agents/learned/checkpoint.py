"""Checkpoints of policies: folders with ``policy.safetensors`` and ``config.json``. Loading one runs no code.

The folder of a coordinator contains that of its executor, ``executor/``.
"""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from gymnasium import spaces
from torch import nn

from hitmac.agents.learned.beliefs import BeliefPolicy, OwnKnowledge
from hitmac.agents.learned.entities import EntityPolicy
from hitmac.agents.learned.policy import CREDITS, CRITICS, AttentionPolicy, check_lists
from hitmac.agents.learned.recurrent import MEMORIES, RecurrentPolicy
from hitmac.agents.policy import FittedActions, PerSensor, Policy, checked_nearness, farthest_reach, is_large
from hitmac.agents.tracking.features import BELIEFS, check_features, space_of
from hitmac.envs.entities import EntityObserver
from hitmac.envs.files import read_text, whole_file, write_text
from hitmac.envs.kernels.entities import MOVES
from hitmac.envs.scenario import DECISIONS, Scenario, from_portable, load_scenario, portable
from hitmac.envs.tasks import TASKS
from hitmac.envs.tasks.base import own_observation_space, own_turning_space, turning_space
from hitmac.envs.tasks.executor import goals_space
from hitmac.envs.validation import IMPORT_HINT, in_short, is_among
from hitmac.perception import EncoderConfig
from hitmac.perception.checks import check_choice, is_whole
from hitmac.perception.encoder import ENCODERS, take_encoder_config

FORMAT = "hitmac-policy"
VERSION = 3
FILES = ("config.json", "policy.safetensors")
EXECUTOR = "executor"
"""Folder of an executor in that of its coordinator."""

POLICY_DEFAULTS = {"critic": None, "credit": "team", "memory": "none"}
"""Options of a policy other than those of the encoder."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """Metadata of a policy: all of a checkpoint except its tensors."""

    policy: dict[str, Any]
    """Keyword arguments of :class:`hitmac.agents.learned.policy.AttentionPolicy`: the encoder's options, as
    ``encoder_config`` or each by its name, ``critic`` and ``credit``; and ``memory``: ``"none"``, or ``"recurrent"``
    for a :class:`hitmac.agents.learned.recurrent.RecurrentPolicy`."""
    features: tuple[str, ...]
    """Observation features of the training, in order, or :data:`hitmac.agents.tracking.features.BELIEFS`."""
    scenario: Scenario
    """Scenario of the training."""
    training_seeds: tuple[int, int]
    """First and last seed of the training scenes."""
    task: str = "Coverage"
    """Task of the training, a name in :data:`hitmac.envs.TASKS`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the task, as in its :class:`hitmac.envs.tasks.TaskSpec`; others have their defaults."""
    nearness: dict[str, Any] = field(default_factory=dict)
    """Options of :class:`hitmac.envs.observation.Observer` for the nearest targets, by name: ``nearest``, ``radius`` in
    the scenario's units, ``neighbours``; {}: all targets."""

    def __post_init__(self) -> None:
        check_choice("task", self.task, TASKS)
        known, rest = TASKS[self.task].spec.options, dict(self.policy)
        if not set(self.options) <= set(known):
            raise ValueError(f"options is {self.options!r}; for {self.task} it may hold {', '.join(known)}")
        encoder = take_encoder_config(rest)
        if unknown := rest.keys() - POLICY_DEFAULTS:
            allowed = [field.name for field in dataclasses.fields(encoder)] + list(POLICY_DEFAULTS)
            raise ValueError(f"policy holds {in_short(unknown, allowed)}; it may hold {', '.join(allowed)}")
        object.__setattr__(self, "options", {**known, **self.options})
        object.__setattr__(self, "policy", {"encoder_config": encoder} | POLICY_DEFAULTS | rest)
        object.__setattr__(self, "nearness", checked_nearness(self.nearness))
        check_choice("memory", self.policy["memory"], MEMORIES)
        check_choice("credit", self.policy["credit"], CREDITS)
        check_choice("critic", self.policy["critic"] or "amc", CRITICS)
        if not all(is_whole(seed, 0) for seed in self.training_seeds):
            raise ValueError(f"training_seeds is {self.training_seeds!r}; it must hold two whole numbers, 0 or more")
        if self.nearness and self._needs_all:
            raise ValueError(f"nearness is {self.nearness!r}; it must be empty, since {self._needs_all}")

    @property
    def _needs_all(self) -> str:
        """Reason why the policy must observe all targets; "" if it need not."""
        if self.role != "agent":
            return f"a policy for {self.task} observes all targets"
        if self.policy["memory"] != "none" or self.features == BELIEFS:
            return "recurrent memories and beliefs include all targets"
        try:
            check_lists(self.encoder)
        except ValueError as error:
            return str(error)
        return ""

    def shown(self, scenario: Scenario, nearness: Mapping[str, Any]) -> "PolicyConfig":
        """Return the metadata for use on a scenario, whose `nearness` selects the targets that the policy observes.

        Without `nearness` they are those of its training. In a large scenario a policy that was trained on all targets
        observes the nearest 8 within two sensing ranges.
        """
        if not nearness and "radius" in (nearness := dict(self.nearness)):  # equal in the feature `distance`
            nearness["radius"] *= scenario.distance_scale / self.scenario.distance_scale
        if not nearness and is_large(scenario) and not self._needs_all:
            nearness = {"nearest": 8, "radius": 2.0 * farthest_reach(scenario)}
        return dataclasses.replace(self, nearness=dict(nearness))

    @property
    def encoder(self) -> EncoderConfig:
        """Options of the policy's encoder."""
        return self.policy["encoder_config"]

    @property
    def kind(self) -> type[AttentionPolicy]:
        """Class of the policy."""
        if self.role == "targets":
            return EntityPolicy
        return RecurrentPolicy if self.policy["memory"] == "recurrent" else AttentionPolicy

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the policy's class."""
        if self.role == "targets":
            return {"encoder_config": self.encoder}
        return {name: value for name, value in self.policy.items() if name != "memory"}

    @property
    def role(self) -> str:
        """Role of the policy; see :class:`hitmac.envs.tasks.TaskSpec`."""
        return TASKS[self.task].spec.role


def build_policy(config: PolicyConfig, scenario: Scenario) -> AttentionPolicy:
    """Return an untrained policy for `scenario`; its tensors fit any n and m if its encoder does."""
    if config.role == "targets":
        observed = own_observation_space(EntityObserver(scenario, "targets").space)
        return config.kind(observed, spaces.Discrete(len(MOVES)), lambda _: 1e-3, **config.arguments)
    space = space_of(scenario, config.features, **config.nearness)
    actions: spaces.Space = turning_space(config.scenario, scenario.num_sensors)
    if config.role == "executor" or config.options.get("per_sensor"):
        space = own_observation_space(goals_space(space, config.options.get("padding", "masked")))
        actions = own_turning_space(config.scenario)
    elif config.role == "coordinator":
        actions = spaces.MultiBinary(scenario.num_sensors * scenario.num_targets)
    return config.kind(space, actions, lambda _: 1e-3, **config.arguments)


def save_policy(folder: str | Path, policy: nn.Module, config: PolicyConfig) -> None:
    """Write the policy to `folder`, which is created if it does not exist; each file is written whole or not at all.

    Raises ``ValueError``, before anything is written, unless `config` describes this policy.
    """
    with torch.device("meta"):
        check_tensors(build_policy(config, config.scenario), tensors_of(policy), "policy of this config")
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "task": config.task,
        "policy": dataclasses.asdict(config.encoder) | {name: config.policy[name] for name in POLICY_DEFAULTS},
        "features": list(config.features),
        "scenario": portable(config.scenario, Path(folder)),
        "training_seeds": list(config.training_seeds),
        "options": config.options,
    } | ({"nearness": config.nearness} if config.nearness else {})
    write_files(Path(folder), plain, policy)


def write_files(folder: Path, plain: Mapping[str, Any], net: nn.Module) -> None:
    """Write the files of a network with the metadata `plain`, as :func:`save_policy` does."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.json", json.dumps(plain, indent=2) + "\n")
    tensors = {name: tensor.contiguous() for name, tensor in tensors_of(net).items()}
    with whole_file(folder / "policy.safetensors") as temporary:
        temporary.write_bytes(safetensors.torch.save(tensors))


def load_policy(
    folder: str | Path, scenario: Scenario | str | None = None, **nearness: Any
) -> tuple[AttentionPolicy, PolicyConfig]:
    """Load a policy and its metadata to PyTorch's default device, which ``with torch.device("cuda"):`` sets.

    Args:
        folder: folder of a checkpoint, or of a run with ``checkpoint/`` (both levels: ``coordinator/checkpoint/``).
        scenario: scenario to use it on; None: that of its training.
        **nearness: options of :class:`hitmac.envs.observation.Observer` for the nearest targets; without any, see
            :meth:`PolicyConfig.shown`. The metadata returned include them.

    Raises:
        FileNotFoundError: no checkpoint.
        ValueError: a damaged file or one of another program, named in the message with the reason; or a directory of
            several trainings.
    """
    for kind, several in (("trainings", trainings_in(folder)), ("variations", variations_in(folder))):
        if several:
            raise ValueError(f"{folder} holds {len(several)} {kind}; name one of them, such as {several[0]}")
    folder = checkpoint_folder(folder)
    for name in FILES:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} is not a checkpoint: it has no {name}")
    config = _read_config(folder / "config.json")
    if scenario is not None or nearness:
        scenario = config.scenario if scenario is None else load_scenario(scenario)
        config = config.shown(scenario, nearness)
    _check_fits(folder, config, scenario := scenario or config.scenario)
    tensors = read_tensors(path := folder / "policy.safetensors")
    with torch.device("meta"):  # without memory: a configuration may ask for more than there is
        check_tensors(build_policy(config, scenario), tensors, path)
    with torch.random.fork_rng():  # first weights, which are replaced: a training that loads draws the same numbers
        policy = build_policy(config, scenario).float()  # PyTorch's default may be another type
    put_tensors(policy, tensors, path)
    policy.set_training_mode(False)
    return policy, config


def _read_config(path: Path) -> PolicyConfig:
    try:
        plain = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from None
    if not isinstance(plain, dict) or plain.pop("format", None) != FORMAT:
        raise ValueError(f'{path} is not the configuration of a policy: its "format" must be {FORMAT!r}')
    if (version := plain.pop("version", None)) != VERSION:
        raise ValueError(f"{path} has version {version}; this program reads version {VERSION}")
    try:
        known = [each.name for each in dataclasses.fields(PolicyConfig)]
        if unknown := plain.keys() - set(known):
            raise ValueError(f"it holds {in_short(unknown, known)}; it may hold {', '.join(known)}")
        first, last = plain["training_seeds"]
        scenario, features = from_portable(plain["scenario"], path.parent), check_features(plain["features"])
        return PolicyConfig(**plain | {"scenario": scenario, "features": features, "training_seeds": (first, last)})
    except (LookupError, TypeError, ValueError) as error:
        policy = plain["policy"] if isinstance(plain.get("policy"), dict) else {}
        here = is_among(plain.get("task", "Coverage"), TASKS) and is_among(policy.get("encoder", "mlp"), ENCODERS)
        hint = "" if here or str(error).endswith(IMPORT_HINT) else IMPORT_HINT
        raise ValueError(f"{path} lacks {error}" if isinstance(error, KeyError) else f"{path}: {error}{hint}") from None


def _check_fits(folder: Path, config: PolicyConfig, scenario: Scenario) -> None:
    """Raise ValueError if a policy does not fit the scenario.

    Only an executor may omit decisions of its training. A plain network is built for fixed n and m.
    """
    trained = config.scenario
    for decision in trained.decisions:
        if config.role == "agent" and decision not in scenario.decisions:
            raise ValueError(
                f"{folder} was trained where {DECISIONS[decision].able}; those of the scenario {scenario.name!r} do "
                f"not {decision}"
            )
    of_one = config.role == "executor" or config.options.get("per_sensor")
    fits = trained.num_targets == scenario.num_targets and (of_one or trained.num_sensors == scenario.num_sensors)
    if not ENCODERS[config.encoder.encoder].any_size and not fits:
        raise ValueError(
            f"{folder} is a plain network for {trained.num_sensors} sensors and {trained.num_targets} targets, but "
            f"the scenario has {scenario.num_sensors} and {scenario.num_targets}"
        )


def adapt_policy(policy: Policy, config: PolicyConfig, scenario: Scenario) -> tuple[Policy, tuple[str, ...]]:
    """Return a policy that turns all sensors, adapted to a scenario, and the features that it then observes."""
    agent: Policy = PerSensor(policy) if config.options.get("per_sensor") else policy
    features = config.features
    if features == BELIEFS:
        beliefs = BeliefPolicy(agent, scenario)
        agent, features = beliefs, beliefs.features
    if config.policy["memory"] == "recurrent" and scenario.knowledge in ("neighbours", "own"):
        agent = OwnKnowledge(agent, scenario)
    return fitted_actions(agent, config, scenario), features


def fitted_actions(policy: Policy, config: PolicyConfig, scenario: Scenario) -> Policy:
    """Return a policy of scenes, or of single sensors, with the decisions of a scenario."""
    trained = config.scenario
    by_steps = (trained.action, scenario.action) == ("rate", "turn")
    return FittedActions(policy, trained, scenario) if by_steps or trained.decisions != scenario.decisions else policy


def tensors_of(policy: nn.Module) -> dict[str, torch.Tensor]:
    """Return each tensor of the policy once; Stable-Baselines3 lists a shared encoder under three names."""
    return {name: parameter.detach() for name, parameter in policy.named_parameters()}


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file, or raise ValueError."""
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None


def check_tensors(policy: nn.Module, tensors: Mapping[str, torch.Tensor], path: str | Path) -> None:
    """Raise ValueError unless `tensors`, read from `path`, have the names and shapes of the policy's."""
    own = tensors_of(policy)
    for name in own.keys() ^ tensors.keys():
        verb = "lacks the tensor" if name in own else "holds the unknown tensor"
        raise ValueError(f"{path} {verb} {name}")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise ValueError(f"{path}: {name} has shape {tuple(tensor.shape)}; it must be {tuple(own[name].shape)}")
        if not tensor.is_floating_point():
            raise ValueError(f"{path}: {name} is {tensor.dtype}; it must be of a floating-point type")


def put_tensors(policy: nn.Module, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Copy `tensors`, read from `path`, into the policy; raise ValueError if any does not fit, and change none."""
    check_tensors(policy, tensors, path)
    own = tensors_of(policy)
    tensors = {name: tensor.to(own[name].dtype) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} has a value that is not finite in {tensor.dtype}")
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def checkpoint_folder(folder: str | Path) -> Path:
    """Return the checkpoint in the folder of a run (with both levels, the coordinator's), or the folder itself."""
    folder = Path(folder)
    if (folder / "coordinator").is_dir():
        folder = folder / "coordinator"
    return folder / "checkpoint" if (folder / "checkpoint").is_dir() else folder


def executor_folder(folder: str | Path) -> Path:
    """Return the executor's folder in a run or checkpoint of an executor or a coordinator."""
    own = checkpoint_folder(folder) / EXECUTOR
    return own if own.is_dir() else own.parent


def copy_executor(executor: str, folder: str | Path) -> None:
    """Copy the executor of a run or checkpoint into the checkpoint `folder`."""
    target = Path(folder) / EXECUTOR
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        with whole_file(target / name) as temporary:
            shutil.copyfile(executor_folder(executor) / name, temporary)


SEED = "seed-"
"""Prefix of the folders of the seeds in the directory of several trainings."""


def trainings_in(folder: str | Path) -> list[Path]:
    """Return the runs in the directory of several trainings, sorted by seed; [] for the directory of one run."""
    found = [path for path in Path(folder).glob(f"{SEED}*") if (path / "config.yaml").is_file()]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def variations_in(folder: str | Path) -> list[Path]:
    """Return the directories of variations in the directory of a group, sorted by name; [] for any other."""
    if not (Path(folder) / "config.yaml").is_file():
        return []
    return sorted(path for path in Path(folder).iterdir() if path.is_dir() and trainings_in(path))


def checked_device(name: str, label: str = "device") -> torch.device:
    """Return the device of a name; raise ValueError, with `label`, if this machine lacks it.

    Names are ``"cpu"``; ``"cuda"``, ``"cuda:1"``, ``"mps"`` or another of PyTorch's accelerators; ``"auto"``: an
    accelerator if the machine has one, else the CPU.
    """
    module = getattr(torch, "accelerator", torch.cuda)  # torch.accelerator is new in PyTorch 2.6
    count = module.device_count()
    kind = getattr(module, "current_accelerator", lambda: torch.device("cuda"))().type if count else "cpu"
    known = ["cpu", *(f"{kind}:{index}" for index in range(count))]
    if name not in ("auto", kind, *known):
        raise ValueError(f"{label} is {name}; on this machine it must be auto or one of {', '.join(known)}")
    return torch.device(kind if name == "auto" else name)
