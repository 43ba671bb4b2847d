"""Tables for the terminal and in Markdown."""

from hitmac.agents.evaluate.tables import markdown, released_reward, table
from tests.agents.evaluate.made import evaluation

PLACES = {"many": (0.7, 0.2), "one": (0.8, 0.1), "still": (0.4, 0.0), "free turning": (0.9, None)}


def test_the_cells_of_a_table():
    shown = evaluation(PLACES, bounds=("free turning",), many=3, one=1)
    shown["agents"]["still"]["improvement"] = [0.9, 0.8, 1.0]
    lines = table(shown).splitlines()
    assert lines[0] == "hit-mac, 200 episodes, seeds 0 to 199"
    assert lines[2].split() == ["agent", "coverage", "95", "%", "interval", "IQM", "decision_reward", "rotation", "P"]
    assert [line.partition("  ")[0] for line in lines[4:9]] == [
        "free turning *", "many (3 seeds)", "still",
        "one training seed: interval over episodes only; another training would differ:", "one (1 seed)",
    ]  # fmt: skip
    assert lines[6].split() == ["still", "0.400", "0.390", "..", "0.410", "0.400", "0.380", "0.000", "0.90"]
    assert lines[4].split()[-2:] == ["-", "-"]
    assert "* free turning: upper bound, computed with the future known." in lines
    assert lines[-1] == "P: probability that many covers more."
    assert max(map(len, lines)) <= 80
    assert table(shown | {"episodes": 1}).startswith("hit-mac, 1 episode, seeds")
    assert table(shown | {"recordings": 3, "empty": 0.93}).splitlines()[0] == (
        "hit-mac, 200 episodes of 3 recordings, seeds 0 to 199; no targets 93.0 % of the time"
    )


def test_a_wide_table_leaves_out_columns_to_fit_a_terminal():
    shown = evaluation({"pretrained:flat": (0.8, 0.1), "still": (0.4, 0.0)}, **{"pretrained:flat": 1}) | {
        "recordings": 2
    }
    shown["agents"]["still"]["improvement"] = [0.9, 0.8, 1.0]
    lines = table(shown).splitlines()
    assert lines[2].split() == ["agent", "coverage", "95", "%", "interval", "IQM", "rotation", "P"]
    assert max(map(len, lines)) <= 80
    shown = evaluation({"runs/2026-11-01/obstacles-with-attention": (0.8, 0.1)})
    assert table(shown).splitlines()[4:] == [
        "runs/2026-11-01/obstacles-  0.800     0.790 .. 0.810  0.800  0.100",
        "with-attention",
    ]


def test_agents_of_one_training_have_their_own_markdown_table():
    shown = evaluation(PLACES, bounds=("free turning",), many=3, one=1) | {"recordings": 2}
    first, second = markdown(shown).split("One training seed: interval over recordings only; another training")
    names = [[line.split(" | ")[0] for line in part.splitlines() if line[:2] == "| "] for part in (first, second)]
    assert names[0] == ["| agent", "| ---", "| free turning (upper bound)", "| many (3 seeds)", "| still"]
    assert names[1] == ["| agent", "| ---", "| one (1 seed)"]
    assert "| still | 0.400 | 0.390 .. 0.410 | 0.400 | 0.380 | 0.000 | - | 0.200 | 0.500 |" in first
    alone = evaluation({"one": (0.8, 0.1)}, one=1)  # which covers more than no other
    assert markdown(alone).count("| agent |") == 1
    assert r"| a\|b (1 seed) | 0.800 |" in markdown(evaluation({"a|b": (0.8, 0.1)}, **{"a|b": 1}))
    assert " P " not in markdown(alone) + table(alone)


def test_rewards_of_executors_are_the_main_column():
    shown = evaluation({"a": (0.4, 0.1), "b": (0.5, 0.2)})
    for name, result in shown["agents"].items():
        result["reward"] = result["decision_reward"] if name == "b" else result["coverage"]
    lines = table(shown).splitlines()
    assert lines[2].split() == ["agent", "reward", "95", "%", "interval", "IQM", "rotation", "coverage"]
    assert [line.split()[:2] for line in lines[4:]] == [["b", "0.480"], ["a", "0.400"]]


def test_rewards_of_the_released_program_are_those_of_its_own_scene():
    assert released_reward("hit-mac")[4, 5] == released_reward("hit-mac-6x9")[4, 5] == 0.737
    assert released_reward("hit-mac-executor") == released_reward("random") == {}
