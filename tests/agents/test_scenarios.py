"""Command line ``hitmac scenarios``: lists, films and pictures."""

from pathlib import Path

import pytest
from PIL import Image

from hitmac import envs
from hitmac.agents.scenarios import main


def test_scenarios_and_environments_are_listed(capsys):
    main([])
    listed = capsys.readouterr().out
    assert max(map(len, listed.splitlines())) <= 80
    for name in [*envs.presets(), *(f"dsn/{task}-v0" for task in envs.TASKS)]:
        assert name in listed
    assert max(map(len, listed.splitlines())) <= 100


def test_any_agent_is_filmed_and_drawn(tmp_path):
    film, picture, films = tmp_path / "film.gif", tmp_path / "picture.png", []
    files = ["--film", str(film), "--picture", str(picture)]
    for agent in ("pretrained:flat", "planner-fast:turn_cost=1", "still"):
        main(["hit-mac-3x4", "--agents", agent, *files, "--steps", "8", "--size", "100"])
        films.append(film.read_bytes())
        with Image.open(film) as shown:
            assert (shown.n_frames, shown.size) == (8, (100, 100))
        with Image.open(picture) as shown:
            assert shown.size == (100, 100)
    assert len(set(films)) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film.gif", "picture.png"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["hit-mac", "--agent", "plannr", "--film", "x.gif"], "unknown agent 'plannr' (did you mean planner?)"),
        (["hit-mac", "--agents", "still,random", "--film", "x.gif"], "agents has 2: still, ...; give a single one"),
        (["nowhere", "--film", "x.gif"], "unknown scenario 'nowhere': known are basketball-4"),
        (["hit-mac", "--film", "absent/x.gif", "--steps", "2"], "absent"),
        (["hit-mac", "--film", "x.gif", "--steps", "0"], "--steps is 0; it must be 1 to 100000"),
        # Names of files are checked before the scenario.
        (["nowhere", "--film", "out.avi"], "--film is 'out.avi'; its name must end in .gif or .mp4"),
        (["nowhere", "--film", "x.gif", "--picture", "x.jpg"], "--picture is 'x.jpg'; its name must end in .png"),
    ],
)
def test_a_bad_command_line_ends_with_one_line(arguments, says, error_of):
    assert says in error_of(main, *arguments)


def test_a_scenario_is_shown_on_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda page: None)
    main(["hit-mac", "--agents", "still, random", "--steps", "2"])
    assert capsys.readouterr().out.startswith("watch.html: still, random; ")
    assert Path("watch.html").is_file()


def test_every_preset_has_a_picture():
    pictures = (Path(__file__).parents[2] / "envs" / "scenes").glob("*.png")
    assert {path.stem for path in pictures} == set(envs.presets())
