"""Exported policies: the decisions of the original, without torch and without this package."""

import hashlib
import json
import logging
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch

from hitmac.agents import HierarchicalAgent, LevelPolicy, PolicyConfig, load_agent
from hitmac.agents.export import export_agent
from hitmac.agents.export import folder as export_folder
from hitmac.agents.export.folder import CARD, main
from hitmac.agents.learned.checkpoint import build_policy, save_policy
from hitmac.agents.learned.recurrent import RECURRENT_FEATURES
from hitmac.agents.pretrained import pretrained_folder
from hitmac.agents.registry import as_agent, as_level
from hitmac.envs import DEFAULT_FEATURES, FEATURES, PAPER_FEATURES, Scenario, Simulator, load_scenario, observe, presets
from hitmac.envs.observation import Observer

SIZES = ((4, 5, 300), (1, 1, 50), (1, 4, 100), (3, 1, 100), (6, 9, 250), (10, 15, 200))
CLOSE = 1e-4  # logits nearer than this are a tie
BIASES = {"attended": (-1.5, -3.0, 5.4), "masked": (-1.5, -3.0, 5.4), "unfiltered": (1.2, -0.6, -2.0)}


def fresh(scenario="hit-mac", task="Coverage", options=None, features=DEFAULT_FEATURES, **policy):
    """An untrained policy that is sure of its decisions, with its configuration."""
    torch.manual_seed(0)
    scenario = load_scenario(scenario)
    config = PolicyConfig(
        policy={"weight_dim": 8} | policy,
        features=features,
        scenario=scenario,
        training_seeds=(2**40, 2**40),
        task=task,
        options=options or {},
    )
    made = build_policy(config, scenario)
    made.set_training_mode(False)
    with torch.no_grad():
        made.action_net[0][2].weight.mul_(500.0)
    return made, config


def agent_of(scenario="hit-mac", **options):
    made, config = fresh(scenario, **options)
    return as_agent(made, config, config.scenario, name="tested")


def hierarchy(scenario="hit-mac", padding="masked", row_id=False, trained_on=None):
    """Two untrained levels, the executor with the decisions of `trained_on`."""
    scenario = load_scenario(scenario)
    sizes = {"num_sensors": scenario.num_sensors, "num_targets": scenario.num_targets}
    coordinator, of_coordinator = fresh(scenario, "Coordinator", features=PAPER_FEATURES)
    features, options = ("bearing", "target_id", "distance"), {"padding": padding, "row_id": row_id}
    executor, of_executor = fresh((trained_on or scenario).replace(**sizes), "Executor", options, features)
    with torch.no_grad():  # half of the pairs are assigned, and all turns are taken
        coordinator.action_net[0][2].bias.fill_(3.0)
        executor.action_net[0][2].bias.copy_(torch.tensor(BIASES[padding]).repeat(executor.decisions))
    levels = LevelPolicy(coordinator, of_coordinator.features), as_level(executor, of_executor, scenario)
    policy = HierarchicalAgent(scenario, *levels, idle="hold")
    return load_agent(policy, scenario)._replace(features=policy.features)


def observation_of(features, scenario, scenes):
    """Observations of scenes, in half of which sensors and targets are not there."""
    rng, (n, m) = np.random.default_rng(0), (scenario.num_sensors, scenario.num_targets)
    shown = Observer(scenario, features).observe(Simulator(scenario, scenes, 7))
    absent = rng.random((scenes, n, m)) < 0.3
    absent |= rng.random((scenes, n, 1)) < 0.2
    absent &= (np.arange(scenes) % 2 == 0)[:, None, None]
    shown["mask"] = np.where(absent, 0, shown["mask"]).astype(np.int8)
    shown["pairs"] = np.where(absent[..., None], 0, shown["pairs"])
    return shown


class Files:
    """Networks in files, .onnx or .pt2, run one after the other."""

    def __init__(self, files):
        self.run = {}
        for file in files:
            if file.suffix == ".pt2":
                extra = {CARD: ""}
                program = torch.export.load(file, extra_files=extra)
                card, run = json.loads(extra[CARD]), self._program(program.module())
            else:
                session = onnxruntime.InferenceSession(file)
                text = session.get_modelmeta().custom_metadata_map["hitmac-export"]
                card, run = json.loads(text), self._session(session)
            (network,) = [one for one in card["networks"] if one["file"] == file.name]
            self.run[file] = network, run
        self.card = card

    @staticmethod
    def _program(module):
        return lambda outputs, inputs: [out.detach().numpy() for out in module(*map(torch.as_tensor, inputs.values()))]

    @staticmethod
    def _session(session):
        return lambda outputs, inputs: session.run(outputs, inputs)

    def decide(self, agent, shown, state=None):
        """Return the outputs of all networks, by name; of a hierarchy a new assignment at every call."""
        kept = {} if state is None else {"state": state}
        for network, run in self.run.values():
            columns = [agent.features.index(name) for name in network["features"]]
            given = {"pairs": np.ascontiguousarray(shown["pairs"][..., columns]), "mask": shown["mask"]} | kept
            outputs = run(network["outputs"], {name: given[name] for name in network["inputs"]})
            kept |= dict(zip(network["outputs"], outputs, strict=True))
        return kept


def check_same(files, make, sizes=SIZES, scenario="hit-mac"):
    """Compare the decisions with those of the agents that `make` gives for each size, but for ties."""
    exported, ties, taken = Files(files), 0, set()
    for n, m, scenes in sizes:
        scene = load_scenario(scenario)
        scene = scene.replace(placement="rails" if scene.rails else "random", num_sensors=n, num_targets=m)
        agent = make(scene)
        shown = observation_of(agent.features, scene, scenes)
        expected, state = agent.policy.predict(shown, deterministic=True)
        got = exported.decide(agent, shown)
        if "assigned" in got:
            np.testing.assert_array_equal(got["assigned"] != 0, state.assigned)
        best = np.sort(got["logits"], -1)
        tie = best[..., -1] - best[..., -2] < CLOSE
        acting = (shown["mask"] * got.get("assigned", 1)).any(-1)  # the others have nothing to decide on
        assert got["actions"].shape == (scenes, len(exported.card["decisions"]), n)
        assert ((got["actions"].reshape(expected.shape) == expected) | tie.reshape(expected.shape)).all()
        ties, taken = ties + (tie & acting[:, None]).sum(), taken | set(expected.ravel())
    assert len(taken) > 1
    assert ties < 10


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Keep the exporter from writing each of its steps for pytest to capture, which takes most of the time."""
    caplog.set_level(logging.ERROR)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    to = tmp_path_factory.mktemp("exported") / "flat"
    export_agent("pretrained:flat", to)
    return to


def test_a_thousand_decisions_are_those_of_the_original(folder, tmp_path):
    assert sum(scenes for *_, scenes in SIZES) == 1000
    for files in ([folder / "policy.onnx"], export_agent("pretrained:flat", tmp_path / "policy.pt2")):
        check_same(files, lambda scene: load_agent("pretrained:flat", scene))


@pytest.mark.slow
def test_both_levels_of_a_hierarchy_are_those_of_the_original(tmp_path):
    files = export_agent("pretrained:hit-mac", tmp_path / "policy.onnx")
    assert [file.name for file in files] == ["policy-coordinator.onnx", "policy-executor.onnx"]
    check_same(files, lambda scene: load_agent("pretrained:hit-mac", scene))


@pytest.mark.parametrize(
    ("padding", "row_id"), [("attended", True), pytest.param("unfiltered", False, marks=pytest.mark.slow)]
)
def test_an_executors_padding_is_exported(padding, row_id, tmp_path):
    files = export_agent(hierarchy(padding=padding, row_id=row_id), tmp_path / "p.pt2", "hit-mac")
    check_same(files, lambda scene: hierarchy(scene, padding, row_id))


ZOOMS = Scenario(zoom=(30, 120), rails=[[(0, 0), (500, 0), (500, 500)]], placement="rails", name="zooms")


@pytest.mark.parametrize(
    "options",
    [
        {"options": {"per_sensor": True}},
        {"attend_over": "pairs", "num_heads": 2, "num_frequencies": 2},
        pytest.param({"attend_over": "targets", "pooling": "max"}, marks=pytest.mark.slow),
        pytest.param({"encoder": "recurrent"}, marks=pytest.mark.slow),
    ],
    ids=["per sensor", "pairs", "targets", "recurrent encoder"],
)
def test_policies_of_every_kind_are_exported(options, tmp_path):
    files = export_agent(agent_of(**options), tmp_path / "p.pt2", "hit-mac")
    sizes = [size for size in SIZES if size[1] > 1 or options.get("encoder") != "recurrent"]  # needs two targets
    check_same(files, lambda scene: agent_of(scene, **options), sizes)


def test_a_plain_network_has_any_number_of_scenes_only(tmp_path):
    agent = agent_of(encoder="mlp")
    files = export_agent(agent, tmp_path / "p.pt2", "hit-mac")
    check_same(files, lambda scene: agent, sizes=[(4, 5, 300), (4, 5, 1)])


def test_zooms_and_moves_are_decided_too(tmp_path):
    files = export_agent(agent_of(ZOOMS), tmp_path / "p.pt2", ZOOMS)
    assert list(Files(files).card["decisions"]) == ["turn", "zoom", "move"]
    check_same(files, agent_of, scenario=ZOOMS)


def test_of_an_executor_only_decisions_of_the_site_are_kept(tmp_path):
    files = export_agent(hierarchy(trained_on=ZOOMS), tmp_path / "p.pt2", "hit-mac")
    assert list(Files(files).card["decisions"]) == ["turn"]
    check_same(files, lambda scene: hierarchy(scene, trained_on=ZOOMS))


@pytest.mark.parametrize("ending", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_a_recurrent_policy_takes_its_state_and_returns_it(ending, tmp_path):
    shared = load_scenario("hit-mac").replace(knowledge="shared")
    agent = agent_of(shared, features=RECURRENT_FEATURES, memory="recurrent")
    exported = Files(export_agent(agent, tmp_path / f"p.{ending}", shared))
    simulator, observer = Simulator(shared, 40, 0), Observer(shared, agent.features)
    state, own, ties = None, np.zeros((40, 4, 5, 8), np.float32), 0
    for step in range(12):
        shown = observer.observe(simulator)
        shown["pairs"][::3, 1] = 0.0  # a sensor that does not work
        expected, state = agent.policy.predict(shown, state, np.full(40, step == 0), deterministic=True)
        got = exported.decide(agent, shown, own)
        own = got["new_state"]
        np.testing.assert_allclose(own, state[0], atol=1e-5)
        best = np.sort(got["logits"], -1)
        tie = best[:, 0, :, -1] - best[:, 0, :, -2] < CLOSE
        assert ((got["actions"][:, 0] == expected) | tie).all()
        ties += tie.sum()
        simulator.step(expected)
    assert ties < 10
    assert abs(own).max() > 0.01


ALONE = """
import importlib.abc, runpy, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numba", "gymnasium", "hitmac", "envs", "agents", "perception"):
            raise ModuleNotFoundError(f"{name} is refused")

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
runpy.run_path(sys.argv[1] + "/run.py", run_name="__main__")
"""


def ran_alone(folder):
    done = subprocess.run(
        [sys.executable, "-P", "-c", ALONE, str(folder)], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_runner_needs_neither_torch_nor_this_package(folder):
    assert {path.name for path in folder.iterdir()} == {"observe.py", "policy.json", "policy.onnx", "run.py"}
    lines = ran_alone(folder)
    assert len(lines) == 20
    assert lines[0].startswith("0 turn [")


def copied(folder, to, **changes):
    """A copy of an exported folder with changes of its card."""
    shutil.copytree(folder, to)
    card = json.loads((to / CARD).read_text())
    (to / CARD).write_text(json.dumps(card | changes))
    return to


def runner(folder, monkeypatch):
    """The module of a folder's run.py."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "observe", raising=False)
    return SimpleNamespace(**runpy.run_path(str(folder / "run.py")))


def test_the_runner_decides_as_the_agent_does_in_an_episode(folder, monkeypatch):
    scenario = load_scenario("hit-mac").replace(extra_move_every=0)
    agent, own = load_agent("pretrained:flat", scenario), runner(folder, monkeypatch).Agent()
    simulator, observer = Simulator(scenario, 1, 3), Observer(scenario, agent.features)
    different = 0
    for _ in range(40):
        expected, _ = agent.policy.predict(observer.observe(simulator), deterministic=True)
        state = simulator.state
        actions = own.decide(
            state.target_position[0], sensor_position=state.sensor_position[0], heading=state.heading[0]
        )
        different += (actions[0] != expected[0]).sum()
        simulator.step(expected)
    assert different <= 1  # but for a tie


def test_the_runner_of_a_hierarchy_keeps_the_assignment_for_ten_sub_steps(tmp_path, monkeypatch):
    to = tmp_path / "both"
    export_agent(hierarchy(), to, "hit-mac")
    assert {path.name for path in to.iterdir()} >= {"coordinator.onnx", "executor.onnx"}
    random = copied(to, tmp_path / "random", idle="random")
    rng, assigned, turns = np.random.default_rng(0), [], []
    for folder in (to, random):
        own = runner(folder, monkeypatch).Agent()
        for _ in range(30):
            turns.append(
                own.decide(
                    rng.uniform(-900, 900, (5, 2)),
                    sensor_position=rng.uniform(-900, 900, (4, 2)),
                    heading=rng.uniform(-180, 180, 4),
                )[0]
            )
            assigned.append(own.kept["assigned"][0].copy())
    changes = [k for k in range(1, 30) if (assigned[k] != assigned[k - 1]).any()]
    assert changes == [10, 20]
    idle = ~np.array(assigned).any(-1)
    turns = np.array(turns)
    if idle[:30].any():
        assert not turns[:30][idle[:30]].any()
    assert idle[30:].any()
    assert turns[30:][idle[30:]].any()


@pytest.mark.parametrize(
    ("name", "scenario", "words"),
    [
        ("planner", "hit-mac", "planner cannot be exported: there is no network of this program in it"),
        ("pretrained:beliefs", "hit-mac", "it reads beliefs"),
        ("memoryless:pretrained:flat", "hit-mac", "export the agent itself"),
        ("assign-all", "hit-mac", "of its coordinator, there is no network"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line_and_leaves_nothing(name, scenario, words, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--to", str(tmp_path / "out"), "--scenario", scenario])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_replaced_only_when_asked(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(export_folder, "_write", lambda part, path, card: path.write_text(card))
    own, there = tmp_path / "own", copied(folder, tmp_path / "there", agent="before")
    own.mkdir()
    for to, words in (
        (own, "holds no policy.json"),
        (there, "add --replace"),
        (there / "policy.onnx", "add --replace"),
    ):
        with pytest.raises(FileExistsError, match=words):
            export_agent("pretrained:flat", to)
    with pytest.raises(FileExistsError, match="holds no"):
        export_agent("pretrained:flat", own, replace=True)
    main(["pretrained:flat", "--to", str(there), "--replace"])
    assert json.loads((there / CARD).read_text())["agent"] == "pretrained:flat"
    assert f"try it: {Path(sys.executable).name} {there}/run.py" in capsys.readouterr().out
    main(["pretrained:flat", "--to", str(tmp_path / "new" / "policy.onnx"), "--scenario", "football-4"])
    card = json.loads((tmp_path / "new" / "policy.onnx").read_text())
    assert card["site"]["name"] == "football-4"


def test_a_failure_leaves_nothing_and_what_was_there_stays(folder, tmp_path, monkeypatch):
    def fails(part, path, card):
        path.write_text("half")
        raise RuntimeError("full")

    monkeypatch.setattr(export_folder, "_write", fails)
    there = copied(folder, tmp_path / "there")
    for to, replace in ((tmp_path / "new", False), (tmp_path / "new.pt2", False), (there, True)):
        with pytest.raises(RuntimeError, match="full"):
            export_agent("pretrained:flat", to, replace=replace)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (there / "policy.onnx").stat().st_size > 10_000


def test_the_card_has_all_that_observations_need(folder):
    card = json.loads((folder / CARD).read_text())
    assert card["networks"][0]["features"] == list(load_agent("pretrained:flat", "hit-mac").features)
    assert card["decisions"]["turn"][0] == "stay"


@pytest.mark.parametrize("name", [*presets(), "city-20x30"])
def test_the_site_has_all_that_observations_need(name):
    scenario = load_scenario(name)
    site = json.loads(json.dumps(export_folder.site_of(scenario)))
    simulator = Simulator(scenario.replace(num_sensors=min(scenario.num_sensors, 30), sensor_positions=()), 1, 0)
    state = simulator.state
    places = {"sensor_position": state.sensor_position[0], "heading": state.heading[0], "along": state.along[0]}
    moving = {"target_position": state.target_position[0], "target_before": state.target_position[0] - 1.0}
    shown = [observe(of, tuple(FEATURES), **places, **moving)["pairs"] for of in (site, scenario)]
    np.testing.assert_array_equal(*shown)
    if name.startswith("city"):  # whose blocks are in the way
        open_site = observe(site | {"walls": []}, ("visible",), **places, **moving)["pairs"]
        assert (open_site != shown[0][..., [tuple(FEATURES).index("visible")]]).any()


def test_the_site_is_that_of_the_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(export_folder, "_write", lambda part, path, card: path.write_text(card))
    for name, scene, task in (
        ("c", "hit-mac-6x9", "Coordinator"),
        ("e", "hit-mac-executor-3x4", "Executor"),
        ("flat", "random", "Coverage"),
    ):
        made, config = fresh(scene, task, {"padding": "masked", "row_id": False} if task == "Executor" else {})
        save_policy(f"runs/{name}/checkpoint", made, config)
    site = {
        "runs/flat": "random",
        "runs/flat:nearest=2": "random",
        "runs/c:runs/e": "hit-mac-6x9",
        "pretrained:any-size:nearest=3:neighbours=2": load_scenario(pretrained_folder("any-size")).name,
    }
    for number, (agent, expected) in enumerate(site.items()):
        export_agent(agent, f"out{number}")
        card = json.loads(Path(f"out{number}", CARD).read_text())
        assert (card["agent"], card["site"]["name"]) == (agent, expected)
    assert load_scenario(export_folder._own_scenario("assign-all:runs/e")).name == "hit-mac-executor-3x4"


def test_what_a_user_has_put_into_the_folder_stays(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(export_folder, "_write", lambda part, path, card: path.write_text(card))
    there = copied(folder, tmp_path / "there")
    (there / "maps").mkdir()
    for name in ("maps/floor.txt", "my_camera.py", "run.py"):
        (there / name).write_text("own")
    export_agent(hierarchy(), there, "hit-mac", replace=True)
    assert {path.name for path in there.iterdir()} == {
        "coordinator.onnx", "executor.onnx", CARD, "observe.py", "run.py", "maps", "my_camera.py"
    }  # fmt: skip
    assert [(there / name).read_text() for name in ("maps/floor.txt", "my_camera.py", "run.py")] == ["own"] * 3
    old = copied(folder, tmp_path / "old", runner=hashlib.sha256(b"of another version").hexdigest())
    (old / "run.py").write_text("of another version")
    export_agent("pretrained:flat", old, replace=True)
    assert (old / "run.py").read_bytes() == (folder / "run.py").read_bytes()


@pytest.mark.parametrize("ending", [".pt", ".pth", ".ort"])
def test_the_ending_of_another_format_is_refused(ending, tmp_path):
    with pytest.raises(ValueError, match=r"its name must end in \.onnx or \.pt2"):
        export_agent("pretrained:flat", tmp_path / f"policy{ending}")


def test_the_runner_decides_where_there_is_no_target(folder, monkeypatch):
    own = runner(folder, monkeypatch).Agent()
    for targets in ([], np.zeros((0, 2))):
        assert own.decide(targets, sensor_position=np.zeros((3, 2)), heading=np.zeros(3)).shape == (1, 3)
