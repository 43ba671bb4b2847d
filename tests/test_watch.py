"""``hitmac watch``, and the window in which an agent plays: keys, episodes, and what ends it."""

import numpy as np
import pygame
import pytest

from hitmac.agents import load_agent
from hitmac.agents.replay import window
from hitmac.agents.replay.window import Player
from hitmac.agents.watch import main
from hitmac.envs import load_scenario

SHORT = load_scenario("hit-mac").replace(episode_steps=3)


@pytest.fixture(autouse=True)
def dummy(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    yield
    pygame.quit()


def player(name="nearest", scenario=SHORT, seed=5):
    return Player(load_agent(name, scenario), scenario, seed, 1010, 1000.0)


def press(*keys):
    for key in keys:
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=key))


@pytest.mark.parametrize("key", [pygame.K_q, pygame.K_ESCAPE, None])
def test_a_key_or_closing_the_window_quits(key):
    shown = player()
    press(key) if key else pygame.event.post(pygame.event.Event(pygame.QUIT))
    shown.run()
    assert shown.episode.sub_step == 0


def test_keys_pause_go_on_and_begin_the_next_episode():
    shown = player()
    press(pygame.K_RIGHT)  # not paused: nothing
    press(pygame.K_SPACE, pygame.K_RIGHT, pygame.K_RIGHT, pygame.K_q)
    shown.run()
    assert (shown.paused, shown.episode.sub_step, shown.seed) == (True, 2, 5)
    press(pygame.K_n, pygame.K_RIGHT, pygame.K_SPACE, pygame.K_q)
    shown.run()
    assert (shown.paused, shown.episode.sub_step, shown.seed) == (False, 1, 6)


class Clock:
    """Time that passes while the player sleeps, and what it shows before each sleep."""

    def __init__(self):
        self.now, self.shown, self.seen = 0.0, None, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.seen.append(self.shown.episode.sub_step)
        if len(self.seen) in (5, 45):
            press({5: pygame.K_SPACE, 45: pygame.K_q}[len(self.seen)])


def test_it_stays_where_it_is_while_paused_and_plays_at_its_speed_otherwise(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(window, "time", clock)
    scenario = load_scenario("hit-mac")
    clock.shown = Player(load_agent("nearest", scenario), scenario, 0, 1010, 20.0)
    press(pygame.K_SPACE)
    clock.shown.run()
    assert clock.seen[:5] == [0] * 5
    assert 3 <= clock.shown.episode.sub_step <= 5  # 40 sleeps of 5 ms are 0.2 s


def test_episodes_follow_one_another_each_with_the_next_seed():
    shown, seen = player(), []
    for _ in range(9):
        seen.append((shown.seed, shown.episode.sub_step))
        shown.go_on()
    assert seen == [(seed, step) for seed in (5, 6, 7) for step in range(4)][:9]


def test_the_agent_plays_as_it_is_evaluated_and_the_bars_show_it():
    from hitmac.agents.evaluate import evaluate

    shown = player("pretrained:hit-mac", SHORT.replace(episode_steps=12))
    for _ in range(12):
        shown.go_on()
    figures = evaluate("pretrained:hit-mac", "hit-mac", episodes=1, seed=5, max_episode_steps=12, progress=False)
    (agent,) = figures["agents"].values()
    np.testing.assert_allclose(shown.means, [agent["coverage"]["mean"], agent["rotation"]["mean"]])
    width, height = shown._window.get_size()
    for row, share in enumerate(shown.means):
        colours = [shown._window.get_at((x, height - 44 + 22 * row + 19))[:3] for x in range(width)]
        assert colours.count(window._BARS[row][1]) == round(width * share)


@pytest.mark.slow
def test_the_command_plays_tracks_and_ends_cleanly(monkeypatch, tmp_path, capsys):
    tracks = tmp_path / "tracks.csv"
    tracks.write_text("time,id,x,y\n" + "".join(f"{0.13 * k},a,{k},0\n" for k in range(6)))
    played = []

    def run(self):
        played.append((self.agent.name, self.seed, self._scenario.tracks, self._sub_steps))
        raise KeyboardInterrupt

    monkeypatch.setattr(Player, "run", run)
    main(["still", "--window", "--tracks", str(tracks), "--seed", "3"])
    main(["--agent", "still", "--window"])
    assert played[0] == ("still", 3, (str(tracks),), 5)
    assert played[1][1:3] == (0, ())
    assert not pygame.get_init()
    assert capsys.readouterr().err == ""


def test_without_a_display_one_line_says_so(monkeypatch, capsys):
    for name in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as end:
        main(["still", "--window", "--scenario", "random"])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hitmac watch: error: there is no display for a window")
    assert line.endswith("write a film instead: hitmac scenarios random --film out.gif")


def test_what_is_wrong_is_named_in_one_line(capsys):
    for arguments, words in (
        (["nobody"], "unknown agent 'nobody'"),
        (["--sub-steps-per-second", "0"], "sub-steps-per-second"),
        (["--to", "watch.gif"], "--to is 'watch.gif'; its name must end in .html"),
        (["still", "nearest", "--window"], "--window shows one agent; there are 2"),
    ):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2
        assert words in capsys.readouterr().err
