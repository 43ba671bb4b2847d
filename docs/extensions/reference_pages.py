"""Reference of all public names of the three packages, from their docstrings, by what they are for."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

from extensions.files import DOCS, write

Groups = dict[str, tuple[str, ...]]

REFERENCE: dict[str, Groups] = {
    "hitmac.perception": {
        "Encoders": ("AgentTargetEncoder", "EncoderConfig", "Features", "Weights", "FlatEncoder"),
        "Entities of several kinds": ("EntityEncoder", "EntityFeatures", "SelectionHead"),
        "Attention": ("AttentionLayer", "MultiHeadAttention", "attend", "causal_mask"),
        "Critic": ("AMCCritic",),
        "Transformers": ("TokenEmbedding", "PositionalEncoding", "EncoderBlock"),
        "The paper's ablations": ("RecurrentLayer", "NoisyLinear"),
        "Batches and checks": ("pad_scenes", "unpad_scenes", "check_finite"),
    },
    "hitmac.envs": {
        "Scenarios": ("Scenario", "load_scenario", "presets"),
        "Simulation": ("Simulator", "Game", "SUB_STEPS", "DECISIONS_PER_EPISODE"),
        "Tasks": ("TASKS", "register_task", "register_observer", "parallel_env"),
        "Observation": ("FEATURES", "DEFAULT_FEATURES", "PAPER_FEATURES", "default_features", "observe", "Memory"),
    },
    "hitmac.agents": {
        "Agents by name": ("load_agent", "load_executor", "load_opponent", "scripted_agent", "Agent", "SCRIPTED"),
        "Policies": ("Policy", "AttentionPolicy", "AttentionExtractor", "EntityPolicy"),
        "Two levels": ("HierarchicalAgent", "LevelPolicy"),
        "Checkpoints": ("load_policy", "save_policy", "PolicyConfig"),
    },
}
"""The names in the ``__all__`` of each package, every one in a group."""

MODULES: dict[str, Groups] = {
    "hitmac.perception": {
        "hitmac.perception.functional": ("SCORES", "Score", "Dot", "ScaledDot", "Bilinear", "Additive"),
        "hitmac.perception.encoder": ("ATTEND_OVER", "Attending"),
        "hitmac.perception.entities": ("ENTITY_BLOCKS",),
        "hitmac.perception.sparse": ("AllPairs", "SparsePairs"),
        "hitmac.perception.fast_paths": ("Groups", "Bucket"),
        "hitmac.perception.recurrent": ("PairMemory", "gru"),
        "hitmac.perception.amc": ("CRITICS",),
        "hitmac.perception.plots": ("heat_map", "lines", "film", "received", "save"),
        "hitmac.perception.released": ("load_released", "ReleasedCoordinator", "ReleasedExecutor"),
    },
    "hitmac.envs": {
        "hitmac.envs.tasks": ("Task", "TaskSpec", "make_task"),
        "hitmac.envs.wrappers.shell": ("Shell",),
        "hitmac.envs.wrappers.gym_env": ("DirectionalSensorEnv",),
        "hitmac.envs.wrappers.vector_env": ("DirectionalSensorVectorEnv",),
        "hitmac.envs.wrappers.sb3_env": ("DirectionalSensorVecEnv",),
        "hitmac.envs.wrappers.pettingzoo_env": ("DirectionalSensorParallelEnv",),
        "hitmac.envs.wrappers.teams_env": ("DuelParallelEnv",),
        "hitmac.envs.wrappers.torchrl_env": ("DirectionalSensorTorchRLEnv", "GroupedTorchRLEnv"),
        "hitmac.envs.observation": ("Observer",),
        "hitmac.envs.parts.detections": ("DetectionObserver",),
        "hitmac.envs.entities": ("EntityObserver", "mate_observations", "mate_states"),
        "hitmac.envs.tasks.executor": ("mask_unassigned",),
        "hitmac.envs.tasks.base": ("unflatten_sensors",),
        "hitmac.envs.render": ("save_pictures", "check_film", "Picture", "save_png"),
        "hitmac.envs.base.state": ("State", "KernelState"),
        "hitmac.envs.base.nearest": ("Grid", "Places", "Cells"),
        "hitmac.envs.features": ("Motor",),
        "hitmac.envs.parts.sensors": ("Poses",),
        "hitmac.envs.parts.motors": ("Motors",),
        "hitmac.envs.parts.rails": ("Rails",),
        "hitmac.envs.parts.streets": ("Streets",),
        "hitmac.envs.parts.recordings": ("Paths", "Recordings"),
        "hitmac.envs.parts.knowledge": ("Knowledge", "Known"),
        "hitmac.envs.parts.values": ("Values",),
        "hitmac.envs.parts.cargo": ("Cargo", "Terms"),
        "hitmac.envs.parts.game": ("RuleMemory", "RULES"),
        "hitmac.envs.allocation": ("GRID_FROM",),
        "hitmac.envs.base.streams": (),
        "hitmac.envs.base.compile": (),
        "hitmac.envs.base.threads": (),
    },
    "hitmac.agents": {
        "hitmac.agents.evaluate": ("evaluate", "evaluate_executors", "save_evaluation", "save_film", "save_pictures"),
        "hitmac.agents.evaluate.bounds": ("bounds_of",),
        "hitmac.agents.evaluate.statistics": ("summary",),
        "hitmac.agents.evaluate.cross": ("evaluate_cross",),
        "hitmac.agents.duel": ("Player", "Population"),
        "hitmac.agents.evaluate.tracking": ("gospa", "identity_switches", "Gospa"),
        "hitmac.agents.command_line": ("provenance",),
        "hitmac.agents.registry": ("import_policy",),
        "hitmac.agents.tracking": ("ParticleTracker", "Tracks", "DetectionFeed"),
        "hitmac.agents.tracking.features": ("BELIEFS", "BeliefFeatures", "TrackFeatures"),
        "hitmac.agents.tracking.particles": ("MODELS", "Belief"),
        "hitmac.agents.tracking.beliefs": ("Beliefs", "BeliefState", "Scene"),
        "hitmac.agents.tracking.sight": ("Sight",),
        "hitmac.agents.tracking.tracks": ("TracksState", "Estimate"),
        "hitmac.agents.planning.planner": ("PlanningPolicy", "PlannerAgent", "PlannerState"),
        "hitmac.agents.deploy.export": ("export_agent",),
        "hitmac.agents.pretrained": (),
        "hitmac.agents.policy": ("started",),
        "hitmac.agents.hierarchy": ("HierarchyState",),
        "hitmac.agents.planning.rules": ("RulePolicy", "BatchRandom"),
        "hitmac.agents.planning.evader": ("EvaderAgent",),
        "hitmac.agents.planning.levels": ("COORDINATORS", "EXECUTORS"),
        "hitmac.agents.learned.entities": ("EntityExtractor",),
        "hitmac.agents.learned.recurrent": ("RecurrentPolicy",),
        "hitmac.agents.learned.group": ("GroupConfig", "GroupEncoder", "GroupPolicy", "perceptron_of"),
        "hitmac.agents.training.ppo": ("PPO",),
        "hitmac.agents.training.rllib.module": ("AttentionRLModule",),
        "hitmac.agents.attention": ("AttentionWatch", "attention_of", "to_targets"),
    },
}  # fmt: skip
"""Further modules of each package, with the names that a user needs or that a docstring names."""

LONG = ("Scenario",)
"""Classes with too many arguments to show; their docstring has a table of them."""


def reference_page(package: str) -> str:
    """Return the page of a package, as Markdown."""
    lines = [f"# {package}", "", *_about(package)]
    for group, names in REFERENCE[package].items():
        lines += [f"## {group}", "", *_entries(package, names)]
    for module, names in MODULES[package].items():
        lines += [f"## {module}", "", *_about(module), *_entries(module, names)]
    return "\n".join(lines)


def _about(module: str) -> list[str]:
    """Return the lines that name a module as the target of links, and the first sentence about it."""
    text = (importlib.import_module(module).__doc__ or "").split("\n\n")[0]
    return ["```{eval-rst}", f".. py:module:: {module}", "", *text.splitlines(), "```", ""]


def _entries(module: str, names: tuple[str, ...]) -> list[str]:
    return ["```{eval-rst}", *(line for name in names for line in _entry(module, name)), "```", ""]


def _entry(module: str, name: str) -> list[str]:
    """Return the directive that documents a name, as lines of reStructuredText."""
    item, full = getattr(importlib.import_module(module), name), f"{module}.{name}"
    if not callable(item) or item.__name__ != name:  # a constant, or another name of something
        home, text = _documented(module, name)
        canonical = [f"   :canonical: {home}.{name}"] if home != module else []
        return [f".. py:data:: {name}", *canonical, "", *(f"   {line}" for line in text), ""]
    if not isinstance(item, type):
        return [f".. autofunction:: {full}", ""]
    arguments, hidden = ("(**parameters)", ", ".join(item.__annotations__)) if name in LONG else ("", "")
    return [
        f".. autoclass:: {full}{arguments}",
        "   :members:",
        *([f"   :exclude-members: {hidden}"] if hidden else []),
        "",
    ]


def _documented(module: str, name: str) -> tuple[str, list[str]]:
    """Return the module in which a constant is defined, and the lines of the docstring below it."""
    documented = ModuleAnalyzer.for_module(module).find_attr_docs()
    if ("", name) in documented:
        return module, documented["", name]
    source = Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            return _documented(node.module, name)
    raise LookupError(f"{module}.{name} has no docstring")


def _write_pages(app: Sphinx, config: object) -> None:
    for package in REFERENCE:
        write(DOCS / "reference" / f"{package.removeprefix('hitmac.')}.md", reference_page(package))


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before the build looks for pages."""
    app.connect("config-inited", _write_pages)
    return {"parallel_read_safe": True}
