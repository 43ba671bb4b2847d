"""Who may import whom, and what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
OURS = {"perception", "envs", "agents", "train"}


def imported(package):
    """Names of the top-level packages that a package's files import, anywhere in them."""
    names = set()
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize(
    ("package", "allowed"), [("perception", set()), ("envs", set()), ("agents", {"perception", "envs"})]
)
def test_packages_import_only_what_they_may(package, allowed):
    assert imported(package) & OURS <= allowed | {package}


ROOMS = {
    "envs": [
        {"files"}, {"scenario"}, {"kernels"}, {"simulator"}, {"observation", "assigned_observation"}, {"tasks"},
        {"render"}, {"apis"}, {"sb3_env", "__init__", "__main__"},
    ],
    "agents": [
        {"policy", "provenance", "command_line"}, {"custom"}, {"baselines", "learned"}, {"hierarchy"}, {"registry"},
        {"evaluate"}, {"training"}, {"__init__"},
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
        for node in ast.walk(ast.parse(path.read_text())):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module and module.startswith(f"{package}."):
                room = module.split(".")[1]
                assert room == own or floor[room] < floor[own], f"{path.relative_to(ROOT)} imports {module}"


def test_perception_and_envs_keep_to_their_libraries():
    optional = {"matplotlib", "safetensors", "tensordict"}  # imported where they are used, see the last test
    assert imported("perception") - set(sys.stdlib_module_names) - optional <= {"torch", "numpy", "perception"}
    assert "torch" not in imported("envs")


@pytest.mark.parametrize(
    ("module", "absent"), [("perception", ["numba", "gymnasium", "stable_baselines3"]), ("envs", ["torch", "PIL"])]
)
def test_an_import_brings_no_more_than_it_needs(module, absent):
    code = f"import sys, {module}; print([name for name in {absent} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


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
