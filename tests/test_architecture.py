"""Directions of imports, and the cost of one."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"perception", "envs", "agents", "train"}


@cache
def modules(path):
    """Return the names of the modules that a file imports, anywhere in it."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def imported(package, but=()):
    """Return the names of the other packages that a package's files import: ours without ``hitmac.``."""
    names = {name for path in (ROOT / package).rglob("*.py") if path.stem not in but for name in modules(path)}
    return {name.removeprefix("hitmac.").split(".")[0] for name in names}


@pytest.mark.parametrize(
    ("package", "allowed"), [("perception", set()), ("envs", set()), ("agents", {"perception", "envs"})]
)
def test_packages_import_only_what_they_may(package, allowed):
    assert imported(package) & OURS <= allowed | {package}


ROOMS = {
    "envs": [
        {"validation", "features"}, {"files", "deployment"}, {"base"}, {"parts"}, {"kernels"}, {"scenario"},
        {"allocation"}, {"simulator"}, {"observation"}, {"entities"}, {"tasks"}, {"render"}, {"wrappers"},
        {"__init__"},
    ],
    "agents": [
        {"policy", "command_line"}, {"tracking"}, {"planning", "learned"}, {"pretrained"}, {"hierarchy"},
        {"registry"}, {"duel"}, {"names"}, {"evaluate"}, {"attention"}, {"deploy"}, {"scenarios"}, {"training"},
        {"__init__"},
    ],
}  # fmt: skip
"""Parts of a package in order; each may import those before it."""


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
    """Optional libraries are imported in the functions that use them."""
    optional = {"PIL", "matplotlib", "safetensors", "tensordict"}
    assert imported("perception") - set(sys.stdlib_module_names) - optional <= {"torch", "numpy", "numba", "perception"}
    assert "torch" not in imported("envs", but=["torchrl_env"])  # TorchRL is made of torch
    for path in [*(ROOT / "envs").rglob("*.py"), *(ROOT / "perception").glob("*.py")]:
        imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import)]
        top = {alias.name.split(".")[0] for node in imports for alias in node.names}
        assert not top & {*optional, "pygame", "pettingzoo"}, path


IMPORTS = """
import sys, gymnasium, hitmac
ids = {spec.id for spec in gymnasium.registry.values() if spec.namespace == "dsn"}
assert not [name for name in sys.modules if name.startswith("hitmac.")]
assert not {"torch", "PIL", "numba"} & {*sys.modules}
import envs
assert not {"torch", "PIL"} & {*sys.modules}
tasks = {task.spec.id for task in envs.TASKS.values()}
assert ids == tasks, f"hitmac/__init__.py registers {ids}; the tasks are {tasks}"
assert hitmac.observe is hitmac.envs.observe
"""
SHORT_NAMES = """
import sys
from perception import AgentTargetEncoder
assert not {"stable_baselines3", "numba", "hitmac.envs", "hitmac.agents"} & {*sys.modules}
from agents import Policy
import envs, gymnasium, hitmac.agents, hitmac.envs, hitmac.perception
assert envs.Scenario is hitmac.envs.Scenario and envs.TASKS is hitmac.envs.TASKS
assert Policy is hitmac.agents.Policy and AgentTargetEncoder is hitmac.perception.AgentTargetEncoder
assert not [name for name in sys.modules if name.startswith(("envs.", "agents.", "perception."))]
assert gymnasium.make("dsn/Coverage-v0").unwrapped.__module__ == "hitmac.envs.wrappers.gym_env"
"""


@pytest.mark.parametrize("code", [IMPORTS, SHORT_NAMES])
def test_an_import_brings_no_more_than_it_needs_and_in_a_checkout_short_names_the_same_classes(code):
    ended = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_docstrings_may_be_absent():
    code = "import hitmac.agents"
    ended = subprocess.run([sys.executable, "-OO", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
