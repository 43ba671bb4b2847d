"""A page for every environment, from its task's docstring, with its spaces, an example and a film."""

from __future__ import annotations

import gymnasium
from sphinx.application import Sphinx

from extensions.files import DOCS, write
from hitmac.agents.evaluate import save_film
from hitmac.envs.tasks import TASKS, Task

FOLDER = DOCS / "environments"
SEED = 0
AGENTS = {
    "Coverage": "pretrained:flat",
    "Executor": "assign-in-range",
    "Coordinator": "pretrained:hit-mac",
    "Transport": "planner-fast",
}
"""Who plays in the film of a task."""

LEGEND = """\
Blue wedges are what sensors see. A target that is seen is a green disc, another one a red ring. Purple lines lead
from a sensor to the targets assigned to it."""

EXAMPLE = """\
import gymnasium
import hitmac  # registers the environments

env = gymnasium.make("{id}")
observation, info = env.reset(seed=0)
for _ in range(10):
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
print(observation.keys(), reward, info["coverage"])

scenes = gymnasium.make_vec("{id}", num_envs=16)
observation, info = scenes.reset(seed=0)  # scene i has the seed i
"""


def environment_page(task: type[Task]) -> str:
    """Return the page of a task's environment, as Markdown."""
    spec = task.spec
    env = gymnasium.make(spec.id).unwrapped
    scenario, observed = env.scenario, env.observation_space.items()
    facts = {
        "action": f"`{env.action_space}`",
        "observation": ", ".join(f"`{key}` {space.shape} {space.dtype}" for key, space in observed),
        "features": ", ".join(f"`{name}`" for name in env.features),
        "scenario": f"`{scenario.name}`: {scenario.num_sensors} sensors, {scenario.num_targets} targets",
        "steps of an episode": str(spec.episode_steps),
        "task": f"{{py:class}}`hitmac.envs.tasks.{task.__name__}`",
    }
    return "\n".join((
        f"# {spec.id}",
        "",
        f"{spec.summary[0].upper()}{spec.summary[1:]}.",
        "",
        f"![a film of {spec.id}]({spec.name.lower()}.gif)",
        "",
        f"`{AGENTS[spec.name]}` plays on `{scenario.name}`, seed {SEED}. {LEGEND}",
        "",
        "| | by default |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
        "## Example",
        "",
        f"```python\n{EXAMPLE.format(id=spec.id)}```",
        "",
        "[Environments](../environments.md) has the other shells, scenarios and all parameters.",
        "",
        "## Specification",
        "",
        "```{eval-rst}",
        f".. autoclass:: hitmac.envs.tasks.{task.__name__}",
        "```",
        "",
    ))  # fmt: skip


def _write_pages(app: Sphinx, config: object) -> None:
    for task in TASKS.values():
        name = task.spec.name.lower()
        write(FOLDER / f"{name}.md", environment_page(task))
        film = FOLDER / f"{name}.gif"
        save_film(film, AGENTS[task.spec.name], task.spec.scenario, seed=SEED, sub_steps=300, every=3)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before the build looks for pages."""
    app.connect("config-inited", _write_pages)
    return {"parallel_read_safe": True}
