"""Cross-play: matches, tables and figures."""

import json
import re

import numpy as np
import pytest

from hitmac.agents.evaluate import cross, evaluate
from hitmac.agents.evaluate.command import main
from hitmac.agents.evaluate.cross import MEASURES, cross_table, evaluate_cross, play_match
from hitmac.agents.evaluate.statistics import summary
from hitmac.envs import Simulator, load_scenario
from hitmac.envs.parts.game import RulePlayer


def made(rows, columns, episodes=4):
    rng = np.random.default_rng(0)
    names = [f"sensors-{i}" for i in range(rows)], [f"runs/a/long/path/targets-{j}" for j in range(columns)]
    scores = {name: 0.2 + 0.5 * rng.random((rows, columns, episodes)) for name in MEASURES}
    about = {"scenario": "mate", "episodes": episodes, "seeds": [3, 2 + episodes]}
    games = {
        name: {
            "per_episode": game.tolist(),
            "matrix": [[summary(one[None], (0.0, 1.0)) for one in row] for row in game],
        }
        for name, game in scores.items()
    }
    return about | dict(zip(("sensors", "targets"), names, strict=True)) | games


def test_a_table_fits_a_terminal_and_leaves_out_intervals_first():
    small, large = cross_table(made(2, 2)), cross_table(made(3, 6))
    assert max(map(len, f"{small}\n{large}".splitlines())) <= 80
    assert small.startswith("mate, 4 episodes, seeds 3 to 6\n\ntargets:\n  A  runs/a/long/path/targets-0\n")
    result = made(2, 2)["transport"]
    cell = result["matrix"][1][0]
    low, high = cell["ci95"]
    assert f"sensors-1  {cell['mean']:.3f} ({low:.3f} .. {high:.3f})  " in small
    assert " .. " not in large
    named = cross_table(made(1, 1) | {"sensors": ["a-population-in-$HOME-with-a-long-name"]})
    assert re.search(r"\na-population-in-\$HOME-  0\.\d.*\nwith-a-long-name\n", named)
    assert "nan" not in cross_table(made(1, 1, 1))  # no interval


# --- matches ---

SMALL = load_scenario("mate-2v4-0").replace(cargoes=1)


def test_a_match_is_played_until_all_is_delivered():
    found = play_match(RulePlayer("sensors", "greedy"), RulePlayer("targets", "greedy"), SMALL, range(3), 900)
    one, steps, coverage = Simulator(SMALL, 1, 2), 0, 0.0
    while not one.game.done[0]:
        one.step(one.game.rule_actions("sensors", "greedy"), target_action=one.game.rule_actions("targets", "greedy"))
        steps, coverage = steps + 1, coverage + one.coverage[0]
    assert steps < 900
    assert found["transport"][2] == one.game.transport_rate[0]
    assert found["coverage"][2] == pytest.approx(coverage / steps, rel=1e-12)
    assert len(set(found["coverage"])) == 3


def test_an_evaluation_of_agents_ends_with_the_game():
    teams = evaluate_cross(["greedy"], ["greedy"], SMALL, episodes=3, max_episode_steps=900, progress=False)
    agents = evaluate("greedy", SMALL, episodes=3, max_episode_steps=900, progress=False)["agents"]
    assert agents["greedy"]["coverage"]["mean"] == pytest.approx(np.mean(teams["coverage"]["per_episode"]), rel=1e-9)


def test_only_missing_matches_are_played(monkeypatch):
    played = []

    def play(sensors, targets, scenario, seeds, steps):
        played.append((sensors.rule, targets.rule, [*seeds], steps))
        return {"transport": np.array(seeds) + 10.0 * len(played), "coverage": np.zeros(len(seeds))}

    monkeypatch.setattr(cross, "play_match", play)
    monkeypatch.setattr(cross, "SCENES_AT_ONCE", 2)
    options = {"episodes": 3, "max_episode_steps": 7, "progress": False}
    first = evaluate_cross({"a": "mate:greedy", "b": "mate:naive"}, ["greedy"], SMALL, **options)
    halves = [0, 1], [2]
    assert played == [(rule, "greedy", half, 7) for rule in ("greedy", "naive") for half in halves]
    assert first["sensors"] == ["a", "b"]
    assert (first["seeds"], first["sub_steps"], first["scenario"]) == ([0, 2], 7, SMALL.name)
    played.clear()
    names = ["mate:greedy", "mate:naive"], ["greedy", "random"]
    second = evaluate_cross(*names, SMALL, known=first, **options)
    assert played == [(rule, "random", half, 7) for rule in ("greedy", "naive") for half in halves]
    episodes = [np.array(one["transport"]["per_episode"]) for one in (first, second)]
    np.testing.assert_array_equal(episodes[1][:, :1], episodes[0])
    assert episodes[1][1, 1].tolist() == [30.0, 31.0, 42.0]
    evaluate_cross(*names, SMALL, seed=1, known=first, **options)  # other episodes
    assert len(played) == 4 + 8


@pytest.mark.parametrize(("arguments", "options", "message"), [
    ((["mate:greedy"], ["greedy"], "hit-mac"), {}, "scenario 'hit-mac' is not a game of two teams, such as"),
    ((["mate:gredy"], ["greedy"], SMALL), {}, r"unknown rule 'gredy' of the sensors \(did you mean greedy\?\)"),
    ((["mate:greedy"], ["greedy"], SMALL), {"episodes": 0}, "episodes is 0"),
])  # fmt: skip
def test_evaluations_that_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate_cross(*arguments, **options)


def test_the_command_writes_the_table_and_every_episode(tmp_path, capsys):
    names = ["--cross", "mate:greedy, mate:naive", "--against", "greedy"]
    files = ["--json", str(tmp_path / "cross.json"), "--pictures", str(tmp_path / "pictures")]
    main([*names, "--scenario", "mate-2v4-0", "--set", "cargoes=1", "--episodes", "2", *files])
    out, written = capsys.readouterr().out, json.loads((tmp_path / "cross.json").read_text())
    assert cross_table(written) in out
    assert written["sensors"] == ["mate:greedy", "mate:naive"]
    main(["--agents", "mate:greedy,mate:naive", "--scenario", "mate-2v4-0", "--set", "cargoes=1", "--episodes", "2"])
    assert capsys.readouterr().out == out.split("every episode")[0]  # against the scenario's walk
    assert (tmp_path / "pictures" / "evaluation.md").read_text() == f"```\n{cross_table(written)}\n```\n"
    assert (tmp_path / "pictures" / "matrix.png").is_file()
