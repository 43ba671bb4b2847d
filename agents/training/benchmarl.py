"""BenchMARL on these environments: its algorithms and configurations train the sensors of a scenario as one group.

``python -m hitmac.agents.training.benchmarl mappo --run-dir runs/mappo`` trains a policy, which every command reads as
``benchmarl:runs/mappo``. In code :class:`SensorTask` is a task of BenchMARL, :class:`AttentionConfig` a model,
and :func:`export` writes the policy of an experiment. ``make baselines`` installs BenchMARL, apart from the rest.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from torch import nn

from hitmac.agents.command_line import parse, stop_on_bad_input
from hitmac.agents.learned.group import ACTIVATIONS, GroupConfig, GroupEncoder, perceptron_of, save_group_policy
from hitmac.agents.training.report import save_points
from hitmac.agents.training.resume import Progress
from hitmac.envs.observation import default_features
from hitmac.envs.scenario import load_scenario, values_of, with_settings
from hitmac.envs.validation import Count, did_you_mean
from hitmac.envs.wrappers.torchrl_env import GroupedTorchRLEnv
from hitmac.perception import EncoderConfig

try:
    from benchmarl.algorithms import algorithm_config_registry
    from benchmarl.environments import TaskClass
    from benchmarl.experiment import Callback, Experiment, ExperimentConfig
    from benchmarl.models import Mlp, MlpConfig
    from benchmarl.models.common import Model, ModelConfig
    from torchrl.data import Composite
except ModuleNotFoundError:
    raise ModuleNotFoundError("this requires BenchMARL: make baselines, or pip install benchmarl") from None

PROGRAM = "python -m hitmac.agents.training.benchmarl"
GROUP = "sensors"
FIRST_SEED, SEEDS = 2**40, 2**20
"""First seed of training scenes, and the number of seeds of a training."""
ENCODER = {"attend_over": "axes", "pooling": "mean", "embed_layers": 2}
"""Options of the encoder, by default."""
QUIET = {"loggers": [], "create_json": False, "evaluation": False, "render": False}
"""Options of an experiment without BenchMARL's own logs and evaluation."""


class SensorTask(TaskClass):
    """Task of BenchMARL: one group, ``sensors``, of a scenario; see :class:`GroupedTorchRLEnv`.

    Args:
        scenario: a preset's name, or the path of a file.
        episode_steps: sub-steps of an episode.
        settings: texts such as ``knowledge=shared``, which change the scenario.
    """

    def __init__(self, scenario: str = "hit-mac", episode_steps: int = 200, settings: Sequence[str] = ()) -> None:
        self.scenario = with_settings(load_scenario(scenario), settings)
        super().__init__(scenario, {"scenario": scenario, "episode_steps": episode_steps, "settings": list(settings)})

    def get_env_fun(
        self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any
    ) -> Callable[[], GroupedTorchRLEnv]:
        def make() -> GroupedTorchRLEnv:
            options: dict[str, Any] = {"max_episode_steps": self.config["episode_steps"], "device": device}
            env = GroupedTorchRLEnv("Coverage", num_envs, self.scenario, continuous=continuous_actions, **options)
            env._set_seed(FIRST_SEED + SEEDS * (seed or 0))
            return env

        return make

    def supports_continuous_actions(self) -> bool:
        return True  # numbers are rounded to turns

    def supports_discrete_actions(self) -> bool:
        return True

    def has_render(self, env: Any) -> bool:
        return False

    def max_steps(self, env: Any) -> int:
        return self.config["episode_steps"]

    def group_map(self, env: Any) -> dict[str, list[str]]:
        return {GROUP: [f"sensor-{i}" for i in range(self.scenario.num_sensors)]}

    def observation_spec(self, env: Any) -> Any:
        return _part(env.full_observation_spec_unbatched, "observation")

    def info_spec(self, env: Any) -> Any:
        return _part(env.full_observation_spec_unbatched, "info")

    def action_mask_spec(self, env: Any) -> Any:
        return _part(env.full_observation_spec_unbatched, "action_mask") if env.masked else None

    def state_spec(self, env: Any) -> Any:
        return Composite(state=env.full_observation_spec_unbatched["state"])

    def action_spec(self, env: Any) -> Any:
        return env.full_action_spec_unbatched

    @staticmethod
    def env_name() -> str:
        return "hitmac"


def _part(spec: Any, name: str) -> Any:
    """Return the spec of one entry of the group."""
    return Composite({GROUP: Composite({name: spec[GROUP, name]}, shape=spec[GROUP].shape)})


class Attention(Model):
    """The encoder as a model of BenchMARL, :class:`hitmac.agents.learned.group.GroupEncoder`.

    It attends over all sensors of the group, as BenchMARL's graph networks with the topology `full`. A critic that also
    reads actions, as of MADDPG, needs another model.
    """

    def __init__(self, feature_dim: int, encoder: dict[str, Any], **given: Any) -> None:
        super().__init__(**given)
        if len(self.in_keys) != 1:
            raise ValueError(f"the encoder reads observations or the state only, not {self.in_keys}; use MlpConfig")
        if not self.share_params:
            raise ValueError("share_policy_params and share_param_critic must be true for the encoder")
        outputs, pooled = self.output_leaf_spec.shape[-1], not self.output_has_agent_dim
        self.net = GroupEncoder(feature_dim, outputs, EncoderConfig(**encoder), pooled).to(self.device)

    def _forward(self, tensordict: Any) -> Any:
        rows = tensordict.get(self.in_key)
        rows = rows if self.input_has_agent_dim else rows.unflatten(-1, (self.n_agents, -1))
        return tensordict.set(self.out_key, self.net(rows))


@dataclass
class AttentionConfig(ModelConfig):
    """Options of :class:`Attention`: the width of a target's features, and those of an ``EncoderConfig``."""

    feature_dim: int = 8
    encoder: dict[str, Any] = field(default_factory=lambda: dict(ENCODER))

    @staticmethod
    def associated_class() -> type[Model]:
        return Attention


def export(experiment: Experiment, folder: Path) -> None:
    """Write the policy of an experiment with a :class:`SensorTask`, for ``benchmarl:FOLDER``.

    Raises:
        ValueError: a policy that is neither an :class:`Attention` nor BenchMARL's ``Mlp`` with shared parameters and an
            activation of :data:`hitmac.agents.learned.group.ACTIVATIONS`, which cannot be written.
    """
    model = experiment.group_policies[GROUP]
    actor = next(part for part in model.modules() if isinstance(part, Model))
    if isinstance(actor, Attention):
        net: nn.Module = actor.net
        network: dict[str, Any] = asdict(actor.net.encoder.config)
    elif isinstance(actor, Mlp) and actor.share_params and experiment.model_config.norm_class is None:
        params = dict(actor.mlp.params.flatten_keys(".").items())
        kind = experiment.model_config.activation_class.__name__
        weights = [tensor for name, tensor in sorted(params.items()) if name.endswith("weight")]
        network = {"widths": [weights[0].shape[1], *(one.shape[0] for one in weights)], "activation": kind}
        if kind not in ACTIVATIONS:
            raise ValueError(f"activation_class is {kind}; it must be one of {', '.join(ACTIVATIONS)}")
        net = perceptron_of(**network)
        net.load_state_dict(params)
    else:
        raise ValueError(
            f"the policy is a {type(actor).__name__}; expected the encoder, or an Mlp with shared parameters"
        )
    task, first = experiment.task, FIRST_SEED + SEEDS * experiment.seed
    env = task.get_env_fun(1, False, 0, "cpu")()
    config = GroupConfig(
        algorithm=experiment.algorithm_name,
        scenario=task.scenario.name,
        features=env.features,
        decisions=task.scenario.decisions,
        continuous=experiment.continuous_actions,
        network=network,
        training_seeds=(first, first + SEEDS - 1),
    )
    save_group_policy(folder, net, config)


class Curve(Callback):
    """Curve of a training, written to `path` at the end of every rollout, with the policy beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.progress, self.began = folder, Progress(), time.perf_counter()

    def on_batch_collected(self, batch: Any) -> None:
        """Add a point: steps, seconds, and means over the rollout."""
        info, reward = batch["next", GROUP, "info"], batch["next", GROUP, "reward"]
        means = [float(one.mean()) for one in (info["coverage"], info["rotation"], reward)]
        self.progress.curve.append((self.experiment.total_frames, time.perf_counter() - self.began, *means))

    def on_train_end(self, training_td: Any, group: str) -> None:
        """Write both."""
        export(self.experiment, self.folder)
        save_points(self.folder / "curve.json", self.progress)
        steps, seconds, coverage, rotation, _ = self.progress.curve[-1]
        print(f"{steps:,} steps, {seconds:.0f} s: coverage {coverage:.3f}, rotation {rotation:.3f}", flush=True)


@dataclass(frozen=True)
class Options:
    """Train a policy by an algorithm of BenchMARL, with its own configuration."""

    algorithm: str = "mappo"
    """Algorithm: mappo, ippo, maddpg, iddpg, masac, isac, qmix, vdn or iql. As the first argument, it
    needs no --algorithm."""
    scenario: str = "hit-mac"
    """Scenario: a preset's name, or the path of a file."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Parameter of the scenario, NAME=VALUE, such as knowledge=shared; can be repeated."""
    model: str = "mlp"
    """Model: mlp, BenchMARL's, for one number of targets; or attention, the encoder, for any."""
    total_steps: Count = 1_000_000
    """Number of sub-steps of training, over all scenes."""
    episode_steps: Count = 200
    """Length of an episode of the training, sub-steps."""
    seed: int = 0
    """Seed of the training, 0 or more."""
    option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Option of BenchMARL's experiment, NAME=VALUE, such as lr=0.0003; can be repeated."""
    run_dir: Path = Path("runs/benchmarl")
    """Folder for the policy and its curve."""


def train(options: Options) -> Experiment:
    """Train as the options say, and write the policy.

    Raises ``ValueError`` for an unknown name or option, ``FileExistsError`` for a folder that holds a policy.
    """
    for name, known in (("algorithm", algorithm_config_registry), ("model", ("mlp", "attention"))):
        if (given := getattr(options, name)) not in known:
            raise ValueError(f"{name} is {given!r}{did_you_mean(given, known)}; it must be one of {', '.join(known)}")
    config = ExperimentConfig.get_from_yaml()
    config.prefer_continuous_actions, config.max_n_frames = False, options.total_steps
    for name, value in (QUIET | values_of(options.option)).items():
        if not hasattr(config, name):
            raise ValueError(f"unknown option {name!r}{did_you_mean(name, vars(config))} of BenchMARL's experiment")
        setattr(config, name, value)
    if (options.run_dir / "policy.safetensors").exists():
        raise FileExistsError(f"{options.run_dir} already holds a policy; give another run_dir")
    options.run_dir.mkdir(parents=True, exist_ok=True)
    config.save_folder = str(options.run_dir)
    task = SensorTask(options.scenario, options.episode_steps, options.set)
    algorithm = algorithm_config_registry[options.algorithm].get_from_yaml()
    model, critic = MlpConfig.get_from_yaml(), MlpConfig.get_from_yaml()
    if options.model == "attention":
        model = AttentionConfig(len(default_features(task.scenario)))
        critic = critic if algorithm.supports_continuous_actions() and "ppo" not in options.algorithm else model
    experiment = Experiment(task, algorithm, model, options.seed, config, critic, [Curve(options.run_dir)])
    experiment.run()
    return experiment


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = parse(Options, PROGRAM, arguments, first="--algorithm")
    with stop_on_bad_input(PROGRAM):
        train(options)
        print(f"policy: {options.run_dir}")


if __name__ == "__main__":
    main()
