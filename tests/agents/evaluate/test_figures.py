"""What the figures show, and that they are written whole."""

import sys
import warnings
from itertools import combinations

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from hitmac.agents import load_agent
from hitmac.agents.evaluate import figures
from hitmac.agents.evaluate.figures import save_bars, save_heat_maps, save_over_time, save_pareto
from hitmac.agents.evaluate.film import save_film, save_films
from hitmac.agents.training.report import save_curve
from hitmac.agents.training.resume import Progress
from hitmac.envs import load_scenario

PLACES = {
    "random": (0.33, 0.67),
    "still": (0.33, 0.0),
    "nearest": (0.705, 0.452),
    "greedy": (0.725, 0.162),
    "planner": (0.825, 0.234),
    "trained": (0.811, 0.222),
    "hit-mac": (0.787, 0.45),
    "assign-all": (0.75, 0.5),
    "free turning": (0.88, None),
}
"""Coverage and rotation."""
FEW = {name: PLACES[name] for name in ("still", "greedy", "trained", "hit-mac", "free turning")}
NOTHING = {"mean": None, "std": None, "ci95": None, "iqm": None, "iqm_ci95": None}


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def entry(mean, half=0.01):
    interval = [mean - half, mean + half]
    return {"mean": mean, "std": 0.1, "ci95": interval, "iqm": mean, "iqm_ci95": interval}


def evaluation(places=PLACES, references=("free turning",), scale=1.0):
    """As agents.evaluate gives it, without the episodes themselves."""
    results = {
        name: {
            "coverage": entry(scale * coverage),
            "decision_reward": entry(scale * coverage - 0.02),
            "rotation": NOTHING if rotation is None else entry(rotation, 0.01 if rotation else 0.0),
            "average_gain": entry(coverage / rotation) if rotation else NOTHING,
            "least_covered": entry(coverage / 2),
            "inference_ms": 0.5,
            "over_time": (coverage - 0.2 * np.exp(-np.arange(20.0))).tolist(),
            "runs": [],
            "per_episode": {},
        }
        | ({"bound": "upper bound"} if name in references else {})
        for name, (coverage, rotation) in places.items()
    }
    return {"scenario": "hit-mac", "episodes": 200, "seeds": [0, 199], "sub_steps": 1000, "agents": results}


DRAW = {
    "bars": lambda path, shown: save_bars(path, shown),
    "pareto": lambda path, shown: save_pareto(path, shown),
    "over_time": lambda path, shown: save_over_time(path, shown),
    "heat_maps": lambda path, shown: save_heat_maps(path, {(4, 5): shown}, {(4, 5): 0.7}),
}


@pytest.mark.parametrize("path", ["curve", "curve.avi", "curve.pdf"])
@pytest.mark.parametrize("figure", [*DRAW, "curve", "film"])
def test_a_picture_is_what_its_name_says(figure, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = DRAW | {
        "curve": lambda path, _: save_curve(path, Progress(1.0, [(1.0,) * 5]), "coverage", {}),
        "film": lambda path, _: save_film(path, None, None, seed=0),  # refused before it needs an agent
    }
    ending = ".gif or .mp4" if figure == "film" else ".png"
    with pytest.raises(ValueError, match=f"path is '{path}'; its name must end in {ending}"):
        draw[figure](path, evaluation(FEW))
    assert not list(tmp_path.iterdir())


@pytest.fixture
def drawn(monkeypatch):
    """Draws, and gives the figure instead of writing it."""
    kept = []
    monkeypatch.setattr(figures, "write_figure", lambda path, figure: kept.append(figure))

    def draw(function, *arguments):
        function("unused.png", *arguments)
        kept[-1].draw_without_rendering()
        return kept[-1]

    return draw


def texts(axis):
    return {text.get_text(): text for text in axis.texts}


def legend(axis):
    """What the legend of a plot names, by name, the highest first."""
    shown = axis.get_legend()
    return dict(zip((text.get_text() for text in shown.get_texts()), shown.get_lines(), strict=True))


def colour(artist):
    return to_hex(artist.get_color())


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_a_figure_is_a_picture(draw, tmp_path):
    path = tmp_path / "figure.png"
    assert draw(path, evaluation()) is None
    picture = matplotlib.image.imread(path)
    height, width = picture.shape[:2]
    assert 500 <= width <= 1200
    assert 200 <= height <= 1200
    assert 0.01 < (picture[..., :3].min(-1) < 0.95).mean() < 0.9
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_a_figure_is_written_whole_or_not_at_all(draw, tmp_path, monkeypatch):
    (tmp_path / "old.png").write_bytes(b"old")

    def broken(figure, path, **options):
        path.write_bytes(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(Figure, "savefig", broken)
    for name in ("old.png", "new.png"):
        with pytest.raises(OSError, match="the disk is full"):
            draw(tmp_path / name, evaluation(FEW))
    assert [path.name for path in tmp_path.iterdir()] == ["old.png"]
    assert (tmp_path / "old.png").read_bytes() == b"old"


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
def test_without_matplotlib_the_message_says_what_to_install(draw, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"figures need matplotlib: pip install 'hitmac\[train\]'"):
        draw(tmp_path / "figure.png", evaluation())
    assert not list(tmp_path.iterdir())


def unusual():
    """Evaluations that are allowed but rare, by what is unusual about them."""
    zero = evaluation({"still": (0.0, 0.0)})
    for result in zero["agents"].values():
        result.update({key: entry(0.0, 0.0) for key in ("coverage", "decision_reward", "rotation", "least_covered")})
        result["over_time"] = [0.0]
    null = evaluation(FEW)
    null["agents"]["free turning"]["rotation"] = null["agents"]["still"]["least_covered"] = None
    null["agents"]["hit-mac"]["over_time"] = None
    null["agents"]["still"]["over_time"] = [0.3, None, 0.4, None]
    intervals = evaluation(FEW)
    intervals["agents"]["still"]["coverage"]["ci95"] = [0.6, 0.7]  # beside the mean
    intervals["agents"]["hit-mac"]["coverage"].pop("ci95")
    names = {"runs/" + 9 * "very-" + "long": (0.7, 0.2), r"a$\nonsense$": (0.6, 0.3), "_x": (0.65, 0.1), "": (0.5, 0)}
    return {
        "one agent, and all is zero": zero,
        "only a bound": evaluation({"free": (0.9, None)}, ("free",)),
        "a bound that turns": evaluation(FEW, references=("hit-mac", "free turning")),
        "null": null,
        "names": evaluation(names),
        "more than there are colours": evaluation({f"{k}": (0.8 + 0.001 * k, 0.2 + 0.001 * k) for k in range(9)}),
        "intervals": intervals,
        "a negative reward": evaluation({"bad": (-0.1, 0.5), "good": (0.2, 0.1)}),
    }


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
@pytest.mark.parametrize("what", unusual())
def test_unusual_evaluations_are_drawn(what, draw, drawn):
    drawn(lambda path: draw(path, unusual()[what]))


def test_an_agent_has_one_colour(drawn):
    shown = evaluation(FEW)
    bars, pareto = drawn(save_bars, shown).axes[0], drawn(save_pareto, shown).axes[0]
    lines, maps = drawn(save_over_time, shown).axes[0], drawn(save_heat_maps, {(4, 5): shown}, {})
    rows = [label.get_text() for label in bars.get_yticklabels()]
    of_bars = {name: to_hex(bar.get_facecolor()) for name, bar in zip(rows, bars.patches, strict=True)}
    of_maps = {axis.get_title(): colour(axis.title) for axis in maps.axes}
    agents_only = [name for name in FEW if name != "free turning"]
    assert len({of_bars[name] for name in agents_only}) == len(agents_only)
    for name in agents_only:
        assert of_bars[name] == colour(legend(pareto)[name]) == colour(legend(lines)[name]) == of_maps[name]
    fewer = drawn(save_over_time, evaluation({"greedy": (0.7, 0.1), "new": (0.8, 0.2)})).axes[0]
    assert colour(legend(fewer)["greedy"]) == of_bars["greedy"]


def test_bars_are_sorted_and_say_their_values(drawn):
    shown = evaluation({"low": (0.2, 0.5), "high": (0.8, 0.6), "free": (0.9, None), "middle": (0.5, 0.7)}, ("free",))
    coverage, reward, rotation, least = drawn(save_bars, shown).axes
    assert [label.get_text() for label in coverage.get_yticklabels()] == ["low", "middle", "high", "free (upper bound)"]
    assert [text.get_text() for text in coverage.texts] == ["0.200", "0.500", "0.800", "0.900"]
    assert [text.get_text() for text in rotation.texts] == ["0.500", "0.700", "0.600", "\u2013"]
    assert [bar.get_width() for bar in reward.patches] == pytest.approx([0.18, 0.48, 0.78, 0.88])
    assert [bool(bar.get_hatch()) for bar in least.patches] == [False, False, False, True]
    whisker = coverage.lines[1]
    assert whisker.get_xdata() == pytest.approx([0.49, 0.51])
    assert whisker.get_ydata() == pytest.approx([1, 1])
    for axis in (coverage, reward, rotation, least):
        for text in axis.texts:
            assert text.get_window_extent().x1 <= axis.bbox.x1 + 1  # the numbers stay in their panel
    for result in shown["agents"].values():
        del result["decision_reward"]
    assert len(drawn(save_bars, shown).axes) == 3
    with pytest.raises(ValueError, match="no agent has any of coverage, decision_reward, rotation, least_covered"):
        drawn(save_bars, evaluation({}))


def test_the_pareto_front_by_hand():
    points = {"a": (0.2, 0.8), "b": (0.1, 0.5), "c": (0.3, 0.8), "d": (0.2, 0.7), "e": (0.5, 0.9), "f": (0.1, 0.5)}
    assert figures._front(points) == ["b", "f", "a", "e"]
    assert figures._front({}) == []


def test_the_pareto_figure(drawn):
    places = PLACES | {"roaming": (0.85, 0.1)}  # which would be of the front, were it no bound
    axis = drawn(save_pareto, evaluation(places, ("free turning", "roaming"))).axes[0]
    stairs = [line for line in axis.lines if line.get_drawstyle() == "steps-post"]
    assert len(stairs) == 1
    front = [(0, 0.33), (0.162, 0.725), (0.222, 0.811), (0.234, 0.825)]
    assert stairs[0].get_xydata()[:-1].tolist() == [list(point) for point in front]
    assert stairs[0].get_xydata()[-1].tolist() == [axis.get_xlim()[1], 0.825]
    markers = {line.get_marker(): line for line in axis.lines if line.get_marker() != "None"}
    assert markers["D"].get_xydata().tolist() == [[0.1, 0.85]]
    strong = {
        (x, y)
        for line in axis.lines
        if line.get_marker() == "o" and line.get_alpha() == 1
        for x, y in line.get_xydata()
    }
    assert strong == set(front)
    (dashed,) = (line for line in axis.lines if line.get_linestyle() == "--")
    assert set(dashed.get_ydata()) == {0.88}
    crosses = [line.get_xydata().tolist() for line in axis.lines if len(line.get_xdata()) == 2]
    assert [pytest.approx([0.224, 0.825]), pytest.approx([0.244, 0.825])] in crosses
    assert [pytest.approx([0.234, 0.815]), pytest.approx([0.234, 0.835])] in crosses


def test_every_agent_is_in_the_legend_and_a_family_once(drawn):
    shown = evaluation()
    for figure in (drawn(save_pareto, shown), drawn(save_over_time, shown)):
        (axis,) = figure.axes
        names = [name if name != "free turning" else "free turning (upper bound)" for name in PLACES]
        assert sorted(legend(axis)) == sorted(names)
        box = axis.get_legend().get_window_extent()
        assert box.x0 >= axis.bbox.x1
        assert box.x1 <= figure.bbox.x1
    places = {"p:c=1": (0.7, 0.1), "p:c=0:d=2": (0.8, 0.3), "p:c=2": (0.75, 0.2), "q:c=1": (0.5, 0.5)}
    axis = drawn(save_pareto, evaluation(places)).axes[0]
    assert list(legend(axis)) == ["p", "q:c=1"]
    assert list(texts(axis)) == ["1", "2", "c=0:d=2"]
    (line,) = (line for line in axis.lines if line.get_label() == "p")
    assert line.get_xydata().tolist() == [[0.1, 0.7], [0.2, 0.75], [0.3, 0.8]]


def test_the_course_of_an_episode(drawn):
    shown = evaluation({"a": (0.5, 0.1), "free": (0.9, None), "none": (0.4, 0.4)}, ("free",))
    shown["agents"]["a"]["over_time"] = [0.25, 0.5, 0.75, 0.5]
    del shown["agents"]["none"]["over_time"]
    axis = drawn(save_over_time, shown).axes[0]
    assert axis.lines[0].get_xydata().tolist() == [[125, 0.25], [375, 0.5], [625, 0.75], [875, 0.5]]
    assert [line.get_linestyle() for line in axis.lines] == ["-", "--"]
    assert list(legend(axis)) == ["free (upper bound)", "a"]
    assert axis.get_xlim() == (0, 1000)
    for result in shown["agents"].values():
        result["over_time"] = [None]
    with pytest.raises(ValueError, match="no agent has over_time"):
        drawn(save_over_time, shown)


def test_heat_maps_have_a_number_in_every_cell_that_is_known(drawn):
    grid = {(n, m): evaluation(FEW, scale=1 - 0.02 * m) for n in (3, 4, 6) for m in (5, 9)}
    del grid[3, 9]
    del grid[6, 5]["agents"]["greedy"]
    grid[4, 5]["agents"]["greedy"]["decision_reward"] = None
    figure = drawn(save_heat_maps, grid, {(4, 9): 0.6003, (6, 9): 0.57451, (9, 9): 0.1})
    shown = {axis.get_title(): axis for axis in figure.axes if axis.get_title()}
    assert list(shown) == ["still", "greedy", "trained", "hit-mac", "free turning (upper bound)"]
    greedy = shown["greedy"]
    assert [label.get_text() for label in greedy.get_yticklabels()] == ["3", "4", "6"]
    assert [label.get_text() for label in greedy.get_xticklabels()] == ["5", "9"]
    cells = {(*reversed(text.get_position()), *text.get_text().split("\n")) for text in greedy.texts}
    assert cells == {(0, 0, "0.632"), (1, 1, "0.575", "(-0.026)"), (2, 1, "0.575", "(+0.000)")}
    values = np.ma.filled(greedy.images[0].get_array(), np.nan)
    assert np.isnan(values).tolist() == [[False, True], [True, False], [True, False]]
    limits = {axis.images[0].get_clim() for axis in shown.values()}
    assert len(limits) == 1  # one scale for all
    for axis in shown.values():
        for one, other in combinations((text.get_window_extent() for text in axis.texts), 2):
            assert not one.overlaps(other)
    with pytest.raises(ValueError, match="no agent has a decision reward"):
        drawn(save_heat_maps, {}, {})


def test_films_of_several_agents_and_scenarios_have_their_names(tmp_path):
    scenes = [load_scenario(name) for name in ("hit-mac-2x3", "random-2x3")]
    still, planner = load_agent("still", scenes[0]), load_agent("planner:turn_cost=0.5", scenes[0])
    again = planner._replace(run="another training")
    one = save_films(tmp_path / "a.gif", [(scenes[0], [still])], seed=0, sub_steps=2)
    two = save_films(tmp_path / "b.gif", [(scenes[0], [still, planner, again])], seed=0, sub_steps=2)
    both = save_films(tmp_path / "c.gif", [(scene, [still]) for scene in scenes], seed=0, sub_steps=2)
    assert [path.name for path in one + two + both] == [
        "a.gif", "b-still.gif", "b-planner-turn-cost=0.5.gif", "c-hit-mac-2x3.gif", "c-random-2x3.gif"
    ]  # fmt: skip
    assert all(path.is_file() for path in one + two + both)
    with pytest.raises(ValueError, match=r"two films would be .*d-still.gif"):
        save_films(tmp_path / "d.gif", [(scenes[0], [still, still._replace(name="still!")])], seed=0, sub_steps=2)
