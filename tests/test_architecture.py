"""Who may import whom, and what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
OURS = {"perception", "envs", "agents", "train"}


def modules(path):
    """Names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(package, but=()):
    """Names of the other packages that a package's files import: ours without ``hitmac.``."""
    names = {name for path in (ROOT / package).rglob("*.py") if path.stem not in but for name in modules(path)}
    return {name.removeprefix("hitmac.").split(".")[0] for name in names}


@pytest.mark.parametrize(
    ("package", "allowed"), [("perception", set()), ("envs", set()), ("agents", {"perception", "envs"})]
)
def test_packages_import_only_what_they_may(package, allowed):
    assert imported(package) & OURS <= allowed | {package}


ROOMS = {
    "envs": [
        {"validation"}, {"files", "deployment"}, {"kernels"}, {"scenario", "recordings"},
        {"allocation"}, {"simulator"}, {"observation"}, {"tasks"}, {"render"}, {"wrappers"}, {"__init__"},
    ],
    "agents": [
        {"policy", "command_line"}, {"tracking"}, {"baselines", "learned"}, {"pretrained"}, {"hierarchy"},
        {"registry"}, {"export"}, {"evaluate"}, {"attention"}, {"replay"}, {"watch"}, {"scenarios"}, {"training"},
        {"reproduce"}, {"__init__"},
    ],
}  # fmt: skip
"""Of the rooms of a package, each may import those before it."""


@pytest.mark.parametrize("package", ROOMS)
def test_inside_a_package_imports_run_one_way(package):
    floor = {room: number for number, rooms in enumerate(ROOMS[package]) for room in rooms}
    files = sorted((ROOT / package).rglob("*.py"))
    assert {path.relative_to(ROOT / package).with_suffix("").parts[0] for path in files} == set(floor)
    for path in files:
        own = path.relative_to(ROOT / package).with_suffix("").parts[0]
        for module in modules(path):
            assert module.split(".")[0] not in OURS, f"{path.relative_to(ROOT)} imports {module}, not hitmac.{module}"
            if module.startswith(f"hitmac.{package}."):
                room = module.split(".")[2]
                room = room if room in floor else "__init__"
                assert room == own or floor[room] < floor[own], f"{path.relative_to(ROOT)} imports {module}"


def test_perception_and_envs_keep_to_their_libraries():
    optional = {"PIL", "matplotlib", "safetensors", "tensordict"}  # imported where they are used, see the last test
    assert imported("perception") - set(sys.stdlib_module_names) - optional <= {"torch", "numpy", "perception"}
    assert "torch" not in imported("envs", but=["torchrl_env"])  # the shell of a library that is made of torch


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("hitmac", ["torch", "PIL", "numba", "hitmac.envs"]),
        ("envs", ["torch", "PIL"]),
        ("hitmac.perception", ["stable_baselines3", "numba", "hitmac.envs", "hitmac.agents"]),
    ],
)
def test_an_import_brings_no_more_than_it_needs(module, absent):
    code = f"import sys, {module}; print([name for name in {absent} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


def test_in_a_checkout_short_names_give_the_same_classes():
    code = """
import sys
import envs
from agents import Policy
from perception import AgentTargetEncoder
import gymnasium, hitmac.agents, hitmac.envs, hitmac.perception
assert envs.Scenario is hitmac.envs.Scenario and envs.TASKS is hitmac.envs.TASKS
assert Policy is hitmac.agents.Policy and AgentTargetEncoder is hitmac.perception.AgentTargetEncoder
assert not [name for name in sys.modules if name.startswith(("envs.", "agents.", "perception."))]
assert gymnasium.make("dsn/Coverage-v0").unwrapped.__module__ == "hitmac.envs.wrappers.gym_env"
"""
    for flags in ([], ["-W", "error"]):
        done = subprocess.run([sys.executable, *flags, "-c", code], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_import_hitmac_registers_the_environments_without_importing_them():
    code = """
import sys, hitmac, gymnasium
assert not [name for name in sys.modules if name.startswith("hitmac.")]
steps = {name: gymnasium.spec(f"dsn/{name}-v0").max_episode_steps for name in ("Coverage", "Executor", "Coordinator")}
assert steps == {name: task.spec.episode_steps for name, task in hitmac.envs.TASKS.items()}
assert hitmac.observe is hitmac.envs.observe
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_only_optional_libraries_are_imported_where_they_are_used():
    for path in [*(ROOT / "envs").rglob("*.py"), *(ROOT / "perception").glob("*.py")]:
        top = {
            name.name.split(".")[0]
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Import)
            for name in node.names
        }
        assert not top & {"PIL", "matplotlib", "pygame", "safetensors", "tensordict", "pettingzoo"}


def test_the_recordings_of_the_released_program_are_small_and_hold_no_weights():
    files = sorted((ROOT / "tests" / "data").iterdir())
    assert sum(path.stat().st_size for path in files) < 300_000
    assert {path.suffix for path in files} == {".md", ".npz"}
    for path in files:
        if path.suffix == ".npz":
            assert not [name for name in np.load(path) if "weight" in name or "bias" in name]
