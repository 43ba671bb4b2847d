"""Cross-play: equilibria of matrix games, losses to best responses, tables and figures."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hitmac.agents.evaluate import cross
from hitmac.agents.evaluate.command import main
from hitmac.agents.evaluate.cross import MEASURES, cross_table, equilibrium, evaluate_cross, play_match, solve
from hitmac.envs import Duel, load_scenario
from hitmac.envs.duel import RulePlayer


@pytest.mark.parametrize(("payoff", "rows", "columns"), [
    ([[0, 1, -1], [-1, 0, 1], [1, -1, 0]], [1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3]),  # rock, paper, scissors
    ([[3, -1], [-2, 4]], [0.6, 0.4], [0.5, 0.5]),  # von Neumann and Morgenstern, by hand: 3x - 2(1 - x) = 4 - 5x
    ([[0.3, 0.2], [0.4, 0.1]], [1, 0], [1, 0]),  # saddle point: rows minimise, columns maximise
    ([[0.7]], [1], [1]),
    ([[0.5, 0.2, 0.4]], [1], [1, 0, 0]),
])  # fmt: skip
def test_an_equilibrium_of_a_known_game(payoff, rows, columns):
    found = equilibrium(np.array(payoff, float))
    np.testing.assert_allclose(found[0], rows, atol=1e-9)
    np.testing.assert_allclose(found[1], columns, atol=1e-9)


@given(arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(-1, 1)))
@settings(max_examples=60, deadline=None)
def test_no_team_gains_by_leaving_an_equilibrium(payoff):
    x, y = equilibrium(payoff)
    assert min(x.min(), y.min()) >= 0.0
    assert x.sum() == pytest.approx(1.0)
    assert y.sum() == pytest.approx(1.0)
    value = x @ payoff @ y
    assert (x @ payoff).max() == pytest.approx(value, abs=1e-7)
    assert (payoff @ y).min() == pytest.approx(value, abs=1e-7)


def test_losses_are_those_to_the_best_response_beyond_the_value():
    # Two episodes with the mean [[3, -1], [-2, 4]]; the value is 1, at (0.6, 0.4) and (0.5, 0.5).
    noise = np.array([[0.5, 0.0], [0.0, 0.0]])
    mean = np.array([[3.0, -1.0], [-2.0, 4.0]])
    game = solve(np.stack([mean + noise, mean - noise], -1), 1.0, ["a", "b"], ["c", "d"])
    assert game["value"]["mean"] == pytest.approx(1.0)
    assert [one["loss"]["mean"] for one in game["sensors"].values()] == pytest.approx([2.0, 3.0])
    assert [one["loss"]["mean"] for one in game["targets"].values()] == pytest.approx([3.0, 2.0])
    assert [one["best_response"] for one in game["sensors"].values()] == ["c", "d"]
    assert [one["best_response"] for one in game["targets"].values()] == ["b", "a"]
    # Student's interval of the paired differences, here 0.5 - 0.15 in one episode and its negative in the other.
    low, high = game["sensors"]["a"]["loss"]["ci95"]
    assert (high - low) / 2 == pytest.approx(12.706 * 0.35, rel=1e-3)
    other = solve(-np.stack([mean, mean], -1), -1.0, ["a", "b"], ["c", "d"])  # the same game, of a measure of sensors
    assert other["value"]["mean"] == pytest.approx(-1.0)
    for team in ("sensors", "targets"):
        for name, one in other[team].items():
            assert one["weight"] == pytest.approx(game[team][name]["weight"])
            assert one["loss"]["mean"] == pytest.approx(game[team][name]["loss"]["mean"])
            assert one["best_response"] == game[team][name]["best_response"]


def made(rows, columns, episodes=4):
    rng = np.random.default_rng(0)
    names = [f"sensors-{i}" for i in range(rows)], [f"runs/a/long/path/targets-{j}" for j in range(columns)]
    scores = {
        name: (0.2 + 0.5 * rng.random((rows, columns, episodes)), sign, *names) for name, sign in MEASURES.items()
    }
    about = {"scenario": "mate", "episodes": episodes, "seeds": [3, 2 + episodes]}
    return about | {name: solve(*game) for name, game in scores.items()}


def test_a_table_fits_a_terminal_and_leaves_out_intervals_first():
    small, large = cross_table(made(2, 2)), cross_table(made(3, 6))
    assert max(map(len, f"{small}\n{large}".splitlines())) <= 80
    assert small.startswith("mate, 4 episodes, seeds 3 to 6\n\ntargets:\n  A  runs/a/long/path/targets-0\n")
    result = made(2, 2)["transport"]
    cell = result["matrix"][1][0]
    half = (cell["ci95"][1] - cell["ci95"][0]) / 2
    assert f"sensors-1  {cell['mean']:.3f} \u00b1{half:.3f}  " in small
    assert f"value {result['value']['mean']:.3f} \u00b1" in small
    assert len([line for line in large.splitlines() if "\u00b1" in line]) == 3  # two values and the note
    assert "nan" not in cross_table(made(1, 1, 1))  # no interval


# --- matches ---

SMALL = load_scenario("mate-2v4-0").replace(cargoes=1)


def test_a_match_is_played_until_all_is_delivered():
    found = play_match(RulePlayer("sensors", "greedy"), RulePlayer("targets", "greedy"), SMALL, range(3), 900)
    one, steps, coverage = Duel(SMALL, 1, 2), 0, 0.0
    while not one.done[0]:
        one.step(one.rule_actions("sensors", "greedy"), target_action=one.rule_actions("targets", "greedy"))
        steps, coverage = steps + 1, coverage + one.coverage[0]
    assert steps < 900
    assert found["transport"][2] == one.transport_rate[0]
    assert found["coverage"][2] == pytest.approx(coverage / steps, rel=1e-12)
    assert len(set(found["coverage"])) == 3


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
    assert [*first["transport"]["sensors"]] == ["a", "b"]
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
    ((["mate:greedy"], ["greedy"], "hit-mac"), {}, "scenario is 'hit-mac', which has no warehouses; two teams play in"),
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
    assert [*written["transport"]["sensors"]] == ["mate:greedy", "mate:naive"]
    main(["--agents", "mate:greedy,mate:naive", "--scenario", "mate-2v4-0", "--set", "cargoes=1", "--episodes", "2"])
    assert capsys.readouterr().out == out.split("every episode")[0]  # against the scenario's walk
    assert (tmp_path / "pictures" / "evaluation.md").read_text() == f"```\n{cross_table(written)}\n```\n"
    assert (tmp_path / "pictures" / "matrix.png").is_file()


@pytest.mark.parametrize(("arguments", "message"), [
    (["--cross", "mate:greedy", "--scenario", "mate-2v4-0", "--film", "a.gif"], "--film is given; with --cross or"),
    (["--cross", "mate:greedy", "--scenario", "mate-2v4-0,mate-4v8-0"], "--cross takes a single scenario"),
    (["--cross", "mate:greedy", "--scenario", "mate-2v4-0", "--bounds"], "--bounds is given; in a game of two"),
    (["--cross", "mate:greedy", "--against", "greedy", "--device", "cudda"], "device is cudda"),
])  # fmt: skip
def test_commands_that_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err
