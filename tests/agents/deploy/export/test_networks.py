"""Exported networks have the decisions of the original, for any number of scenes, sensors and targets."""

import json

import numpy as np
import onnxruntime
import pytest
import torch

from hitmac.agents import LevelPolicy, load_agent
from hitmac.agents.deploy.export.folder import CARD
from hitmac.agents.learned.recurrent import RECURRENT_FEATURES
from hitmac.agents.registry import as_agent, as_hierarchy, as_level
from hitmac.envs import Simulator, load_scenario
from hitmac.envs.observation import Observer
from tests.agents.deploy.export.made import ZOOMS, agent_of, exported, hierarchy
from tests.agents.untrained import untrained
from tests.envs.scenes import BY_RATE

THOUSAND = ((4, 5, 300), (1, 1, 50), (1, 4, 100), (3, 1, 100), (6, 9, 250), (10, 15, 200))
SIZES = ((4, 5, 100), (1, 1, 30), (3, 1, 40), (6, 9, 60))
CLOSE = 1e-4  # logits nearer than this are a tie


class Files:
    """Networks in files, .onnx or .pt2, run one after the other."""

    def __init__(self, files):
        self.networks = []
        for file in files:
            if file.suffix == ".pt2":
                extra = {CARD: ""}
                run, card = torch.export.load(file, extra_files=extra).module(), extra[CARD]
            else:
                session = onnxruntime.InferenceSession(file)
                run, card = session.run, session.get_modelmeta().custom_metadata_map["hitmac-export"]
            self.card = json.loads(card)
            self.networks += [(network, run) for network in self.card["networks"] if network["file"] == file.name]

    @torch.no_grad()
    def decide(self, agent, shown, **kept):
        """Return the outputs of all networks, by name; of a hierarchy a new assignment at every call."""
        for network, run in self.networks:
            columns = [agent.features.index(name) for name in network["features"]]
            given = {"pairs": np.ascontiguousarray(shown["pairs"][..., columns]), "mask": shown["mask"]} | kept
            inputs = {name: given[name] for name in network["inputs"]}
            if isinstance(run, torch.nn.Module):
                outputs = [out.numpy() for out in run(*map(torch.as_tensor, inputs.values()))]
            else:
                outputs = run(network["outputs"], inputs)
            kept |= dict(zip(network["outputs"], outputs, strict=True))
        return kept


def ties_of(logits):
    best = np.sort(logits, -1)
    return best[..., -1] - best[..., -2] < CLOSE


def check_same(files, make, sizes=SIZES, scenario="hit-mac"):
    """Compare the decisions with those of the agents that `make` returns for each size, except for ties."""
    networks, ties, taken, rng = Files(files), 0, set(), np.random.default_rng(0)
    for n, m, scenes in sizes:
        scene = load_scenario(scenario)
        scene = scene.replace(placement="rails" if scene.rails else "random", num_sensors=n, num_targets=m)
        agent = make(scene)
        shown = Observer(scene, agent.features).observe(Simulator(scene, scenes, 7))
        absent = (rng.random((scenes, n, m)) < 0.3) | (rng.random((scenes, n, 1)) < 0.2)
        absent[1::2] = False  # every second scene is complete
        shown["mask"][absent], shown["pairs"][absent] = 0, 0
        expected, state = agent.policy.predict(shown, deterministic=True)
        got = networks.decide(agent, shown)
        if "assigned" in got:
            np.testing.assert_array_equal(got["assigned"] != 0, state.assigned)
        tie = ties_of(got["logits"])
        acting = (shown["mask"] * got.get("assigned", 1)).any(-1)
        assert got["actions"].shape == (scenes, len(networks.card["decisions"]), n)
        assert ((got["actions"].reshape(expected.shape) == expected) | tie.reshape(expected.shape)).all()
        ties, taken = ties + (tie & acting[:, None]).sum(), taken | set(expected.ravel())
    assert len(taken) > 1
    assert ties < 10
    return list(networks.card["decisions"])


def test_a_thousand_decisions_are_those_of_the_original(flat):
    assert sum(scenes for *_, scenes in THOUSAND) == 1000
    check_same([flat / "policy.onnx"], lambda scene: load_agent("pretrained:flat", scene), THOUSAND)


def test_axes_of_any_size_have_names(flat):
    session = onnxruntime.InferenceSession(flat / "policy.onnx")
    shapes = {one.name: one.shape for one in (*session.get_inputs(), *session.get_outputs())}
    assert shapes["pairs"][:3] == shapes["mask"] == ["batch", "agents", "targets"]
    assert shapes["logits"] == ["batch", 1, "agents", 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("policy.onnx", {"trained_on": ZOOMS}),  # attended, with row numbers; only the site's decisions are left
        ("policy.pt2", {"padding": "unfiltered", "row_id": False,
                        "coordinator": {"attend_over": "targets", "pooling": "max"}}),
    ],
)  # fmt: skip
def test_both_levels_of_a_hierarchy_are_those_of_the_original(name, options, tmp_path):
    files = exported(hierarchy(**options), tmp_path / name, "hit-mac")
    assert [file.stem for file in files] == ["policy-coordinator", "policy-executor"]
    assert check_same(files, lambda scene: hierarchy(scene, **options)) == ["turn"]


@pytest.mark.parametrize(
    ("options", "scenario", "sizes", "decisions"),
    [
        ({"options": {"per_sensor": True}}, "hit-mac", SIZES, ["turn"]),
        ({"attend_over": "pairs", "num_heads": 2, "num_frequencies": 2}, ZOOMS, SIZES, ["turn", "zoom", "move"]),
        ({"encoder": "mlp"}, "hit-mac", ((4, 5, 300), (4, 5, 1)), ["turn"]),
    ],
    ids=["per sensor", "pairs with zooms and moves", "plain network of one size"],
)
def test_policies_of_every_kind_are_exported(options, scenario, sizes, decisions, tmp_path):
    files = exported(agent_of(scenario, **options), tmp_path / "p.pt2", scenario)
    assert check_same(files, lambda scene: agent_of(scene, **options), sizes, scenario) == decisions


@pytest.mark.parametrize(
    ("scene", "levels"),
    [
        pytest.param(BY_RATE, False, id="flat"),
        pytest.param(
            load_scenario("mate-2v4-1").replace(action="rate", knowledge="full"),
            True,
            id="both levels in a game",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_policies_of_rates_are_exported(scene, levels, tmp_path):
    if levels:
        coordinator, of_first = untrained(scene, "Coordinator", noise=0.5)
        executor = as_level(*untrained(scene, "Executor", noise=0.5), scene)
        agent = as_hierarchy("both", scene, LevelPolicy(coordinator, of_first.features), executor, idle="hold")
    else:
        agent = as_agent(*untrained(scene, noise=0.5), scene, name="flat")
    networks = Files(exported(agent, tmp_path / "p.pt2", scene))
    shown = Observer(scene, agent.features).observe(Simulator(scene, 20, 7))
    expected, _ = agent.policy.predict(shown, deterministic=True)
    got = networks.decide(agent, shown)["actions"]
    assert "share" in networks.card["decisions"]["turn"]
    assert len(set(np.unique(got)) - {-1.0, 0.0, 1.0}) > 1
    np.testing.assert_allclose(got.reshape(expected.shape), expected, atol=1e-5)


@pytest.mark.slow
def test_a_recurrent_policy_takes_its_state_and_returns_it(tmp_path):
    shared = load_scenario("hit-mac").replace(knowledge="shared")
    agent = agent_of(shared, features=RECURRENT_FEATURES, memory="recurrent")
    networks = Files(exported(agent, tmp_path / "p.pt2", shared))
    simulator, observer = Simulator(shared, 40, 0), Observer(shared, agent.features)
    state, own, ties = None, np.zeros((40, 4, 5, 8), np.float32), 0
    for step in range(12):
        shown = observer.observe(simulator)
        shown["pairs"][::3, 1] = 0.0  # a sensor that does not work
        expected, state = agent.policy.predict(shown, state, np.full(40, step == 0), deterministic=True)
        got = networks.decide(agent, shown, state=own)
        own = got["new_state"]
        np.testing.assert_allclose(own, state[0], atol=1e-5)
        tie = ties_of(got["logits"])[:, 0]
        assert ((got["actions"][:, 0] == expected) | tie).all()
        ties += tie.sum()
        simulator.step(expected)
    assert ties < 10
    assert abs(own).max() > 0.01
