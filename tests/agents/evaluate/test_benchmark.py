"""``hitmac benchmark``: the frozen suite, results that continue, refusals, scores."""

import json
from pathlib import Path

import numpy as np
import pytest

from hitmac.agents.evaluate import benchmark, evaluate
from hitmac.agents.evaluate.bounds import compute_bound
from hitmac.agents.evaluate.statistics import mean_of
from hitmac.agents.learned.checkpoint import SEED
from tests.agents.evaluate.made import saved

TWO = """
version: 1
scenes:
  hit-mac: {scenario: hit-mac, episodes: 4, sub_steps: 5, floor: 0.25, bound: 0.75}
  site: {scenario: examples/site/site.yaml, days: [6, 7], episodes: 3, sub_steps: 5, floor: 0.5, bound: 1}
"""


class FourSensors:
    """Agent that is made for four sensors."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.zeros(observation["mask"].shape[:-1], int) + np.arange(4) % 3, None


def suite_of(folder, text=TWO):
    path = folder / "suite.yaml"
    path.write_text(text)
    return benchmark.load_suite(path)


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return suite_of(tmp_path)


def played(result):
    return {name: scene["per_episode"] for name, scene in result["scenes"].items()}


def test_an_interrupted_run_continues_to_the_same_result(suite, monkeypatch):
    whole = benchmark.run("greedy", Path("whole.json"), suite, progress=False)
    direct = evaluate("greedy", suite.scenes["site"].scenario, episodes=3, max_episode_steps=5, progress=False)
    assert played(whole)["site"]["coverage"] == direct["agents"]["greedy"]["per_episode"]["coverage"]
    names, evaluated = [], benchmark.evaluate

    def interrupted(agents, scenario, **options):
        names.append(scenario.name)
        if len(names) == 2:
            raise KeyboardInterrupt
        return evaluated(agents, scenario, **options)

    monkeypatch.setattr(benchmark, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        benchmark.run("greedy", Path("half.json"), suite, progress=False)
    with pytest.raises(ValueError, match=r"half.json is not finished, without site; .*run greedy --to half.json"):
        benchmark.read_results([Path("half.json")], suite)
    assert played(benchmark.run("greedy", Path("half.json"), suite, progress=False)) == played(whole)
    assert names == ["hit-mac", "site", "site"]
    with pytest.raises(ValueError, match=r"half.json is a result with agent greedy, which now is still"):
        benchmark.run("still", Path("half.json"), suite, progress=False)


def test_an_agent_that_does_not_fit_a_scene_plays_the_others(suite, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    name = f"{__name__}:FourSensors"
    result = benchmark.run(name, Path("four.json"), suite, progress=False)
    assert list(result["scenes"]) == ["hit-mac"]
    assert "(3,6) (4,)" in result["refused"]["site"]  # of numpy
    benchmark.run("still", Path("still.json"), suite, progress=False)
    results = benchmark.read_results([Path("still.json"), Path("four.json")], suite)
    shown = benchmark.table(results, suite)
    assert f"{name} on site: " in shown
    assert max(map(len, shown.partition("score: ")[0].splitlines())) <= 80
    compared = benchmark.compare(results, suite)
    own = np.mean(played(result)["hit-mac"]["coverage"])
    assert compared[name]["score"][0] == pytest.approx(((own - 0.25) / 0.5 + 0.0) / 2)
    with pytest.raises(ValueError, match=r"any scene of the suite: unknown agent 'plannr' .did you mean planner"):
        benchmark.run("plannr", Path("none.json"), suite, progress=False)
    with pytest.raises(ValueError, match=r"'planner:turn_cost=0.1/0.5', which names 2 agents; give one"):
        benchmark.run("planner:turn_cost=0.1/0.5", Path("none.json"), suite, progress=False)
    assert not Path("none.json").exists()


def test_trainings_count_with_their_steps(suite, tmp_path):
    for number in range(2):
        saved(tmp_path / f"runs/{number}/checkpoint", number)
        points = [{"steps": 10, "seconds": 1.0}, {"steps": 30 + number, "seconds": 2.5}]
        (tmp_path / f"runs/{number}/curve.json").write_text(json.dumps({"exploring": points}))
    result = benchmark.run("ours=runs/0+runs/1", Path("ours.json"), suite, progress=False)
    assert [one["steps"] for one in result["trainings"]] == [30, 31]
    assert len(played(result)["hit-mac"]["coverage"]) == 2 * 4
    results = benchmark.read_results([Path("ours.json")], suite)
    benchmark.save_comparison(Path("scores.png"), results, suite)
    assert "ours (2 seeds)" in benchmark.table(results, suite)


def test_an_agent_may_be_a_run_for_each_scene(suite, tmp_path):
    for name, steps in {"hit-mac": 7, "site": 8}.items():
        folder = tmp_path / "runs" / name
        saved(folder / "checkpoint", steps)
        (folder / "curve.json").write_text(json.dumps({"exploring": [{"steps": steps, "seconds": 1.0}]}))
    one = benchmark.run("runs/hit-mac", Path("one.json"), suite, progress=False)
    for number, agent in enumerate(["runs/{scene}", "ours=runs/{scene}"]):
        each = benchmark.run(agent, Path(f"each-{number}.json"), suite, progress=False)
        assert each["agent"] == agent.partition("=")[0]
        assert played(each)["hit-mac"] == played(one)["hit-mac"]
        assert played(each)["site"] != played(one)["site"]
        assert each["trainings"] == [{"run": "runs/hit-mac, runs/site", "steps": 15, "seconds": 2.0}]
    (tmp_path / "runs/site/curve.json").write_text(json.dumps({"exploring": []}))  # ended before the first update
    assert benchmark.training_amounts(tmp_path / "runs/site") == []
    (tmp_path / "runs/site/curve.json").unlink()
    unknown = benchmark.run("runs/{scene}", Path("unknown.json"), suite, progress=False)
    assert unknown["trainings"] == [{"run": "runs/hit-mac, runs/site", "steps": None, "seconds": None}]
    for seed in range(2):
        saved(tmp_path / f"runs/hit-mac/{SEED}{seed}/checkpoint", seed)
        (tmp_path / f"runs/hit-mac/{SEED}{seed}/config.yaml").touch()
    with pytest.raises(ValueError, match=r"has {'hit-mac': 2, 'site': 1} trainings; it must have as many for each"):
        benchmark.run("runs/{scene}", Path("two.json"), suite, progress=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 0}, r"is of version 0 \(digest .*\) of the suite; this program has version 1 \(digest .*\), so"),
        ({"digest": "abc"}, r"is of version 1 \(digest abc\) of the suite; this program has version 1 \(digest "),
        ({"format": "other"}, "other.json is not a result of hitmac benchmark run: .*'other'"),
        ({}, "two results are of still"),
    ],
)
def test_other_results_are_refused_in_a_table(change, message, suite):
    whole = benchmark.run("still", Path("still.json"), suite, progress=False)
    Path("other.json").write_text(json.dumps(whole | change))
    with pytest.raises(ValueError, match=message):
        benchmark.read_results([Path("still.json"), Path("other.json")], suite)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("episodes: 4", "episodes: 5"),
        ("[6, 7]", "[6, 8]"),
        ("hit-mac, ep", "hit-mac, set: {turn_angle: 6}, ep"),
        ("bound: 1", "bound: 0.9"),
    ],
)
def test_the_digest_covers_all_that_defines_the_suite(old, new, suite, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    assert suite_of(tmp_path).digest == suite.digest
    assert suite_of(tmp_path, TWO.replace(old, new)).digest != suite.digest


def test_the_suite_needs_its_recordings(suite, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "SOURCE", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"examples/site/site.yaml is part of the source only; run .* checkout"):
        benchmark.load_suite()


def test_the_frozen_suite():
    """Whoever changes it gives it another version, and plays all results again."""
    suite = benchmark.load_suite()
    assert str(suite) == "version 1 (digest 73e3458fc52d)"
    names = {"hit-mac", "hit-mac-6x9", "obstacles", "mixed", "hit-mac-shared", "site", "concourse", "large"}
    assert suite.scenes.keys() == names | {"mate-4v8-9"}
    for path in sorted((benchmark.SOURCE / "benchmarks/results").glob("*.json")):
        benchmark.read_results([path], suite)


@pytest.mark.slow
def test_the_ends_of_the_scores_are_those_of_the_agents_and_the_bound():
    scene = benchmark.load_suite().scenes["mixed"]
    found = evaluate(
        ["still", "random"], scene.scenario, episodes=scene.episodes, max_episode_steps=scene.sub_steps, progress=False
    )
    floor = max(result["coverage"]["mean"] for result in found["agents"].values())
    coverage, _ = compute_bound("free turning", scene.scenario, range(scene.episodes), scene.sub_steps)
    assert floor == pytest.approx(scene.floor, abs=5e-4)
    assert mean_of(coverage, 1).mean() == pytest.approx(scene.bound, abs=5e-4)
