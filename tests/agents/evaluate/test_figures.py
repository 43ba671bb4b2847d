"""Contents of the figures, and their files."""

import sys

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from hitmac.agents.evaluate import figures
from hitmac.agents.evaluate.figures import save_bars, save_heat_maps, save_over_time, save_pareto, save_sweeps
from tests.agents.evaluate.made import NOTHING, evaluation

PLACES = {
    "random": (0.33, 0.67), "still": (0.33, 0.0), "nearest": (0.705, 0.452), "greedy": (0.725, 0.162),
    "planner": (0.825, 0.234), "trained": (0.811, 0.222), "hit-mac": (0.787, 0.45), "free turning": (0.88, None),
}  # fmt: skip
FEW = {name: PLACES[name] for name in ("still", "greedy", "trained", "hit-mac", "free turning")}
BOUND = ("free turning",)
DRAW = [
    save_bars,
    save_pareto,
    save_over_time,
    lambda path, shown: save_heat_maps(path, {(4, 5): shown}, {(4, 5): 0.7}),
    lambda path, shown: save_sweeps(path, {"hops": {1.0: shown, 2.0: shown}}),
]


@pytest.fixture
def drawn(monkeypatch):
    """Draws a figure and returns it instead of writing it."""
    kept = []
    monkeypatch.setattr(figures, "write_figure", lambda path, figure: kept.append(figure))

    def draw(function, *arguments):
        function("unused.png", *arguments)
        kept[-1].draw_without_rendering()
        return kept[-1]

    return draw


def legend(axis):
    """Lines of the legend by name, the highest first."""
    shown = axis.get_legend()
    return dict(zip((text.get_text() for text in shown.get_texts()), shown.get_lines(), strict=True))


def texts(artists):
    return [one.get_text() for one in artists]


def test_a_figure_is_one_whole_png_or_none(tmp_path, monkeypatch):
    path, shown = tmp_path / "figure.png", evaluation(FEW, BOUND)
    save_bars(path, shown)
    before = path.read_bytes()
    assert matplotlib.image.imread(path).shape[1] == 1100
    with pytest.raises(ValueError, match=r"path is 'figure.pdf'; its name must end in .png"):
        save_bars("figure.pdf", shown)
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: path.write_bytes(b"half") / 0)
    with pytest.raises(ZeroDivisionError):
        save_bars(path, shown)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"figures require matplotlib: pip install 'hitmac\[train\]'"):
        save_bars(path, shown)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [before]


@pytest.mark.parametrize("draw", DRAW)
def test_unusual_evaluations_are_drawn_with_all_agents(draw, drawn):
    shown = evaluation(FEW | {"runs/" + 9 * "very-": (0.7, 0.2), r"a$\nonsense$": (0.6, 0.3), "": (-0.1, 0)}, BOUND)
    agents = shown["agents"]
    agents["free turning"]["rotation"] = agents["still"]["least_covered"] = agents["hit-mac"]["over_time"] = None
    agents["still"]["over_time"] = [0.3, None, 0.4, None]
    agents["still"]["coverage"]["ci95"] = [0.6, 0.7]  # the mean is outside
    agents["hit-mac"]["coverage"]["ci95"] = None  # of a single recording
    found = set(texts(drawn(lambda path: draw(path, shown)).findobj(matplotlib.text.Text)))
    for name, result in agents.items():
        assert figures.label_of(name, result) in found or (draw is save_over_time and not result["over_time"])
    drawn(lambda path: draw(path, evaluation({"free": (0.9, None)}, ("free",))))


@pytest.mark.parametrize("draw", DRAW)
def test_many_agents_with_long_names_differ_and_are_inside_the_figure(draw, drawn):
    ends = "with-the-same-long-end-of-their-names"
    names = [f"_folder-{k}/{ends}" for k in range(22)]
    shown = evaluation({name: (0.03 * k, 0.02 * k) for k, name in enumerate(names)}, **{names[0]: 1})
    shown["scenario"] = "a-scene-with-a-long-name"
    figure = drawn(lambda path: draw(path, shown | {"recordings": 3, "empty": 0.5}))
    shown_texts = [one for one in figure.findobj(matplotlib.text.Text) if one.get_text()]
    labels = [one for one in shown_texts if one.get_text().replace("\n", "").strip().startswith("_folder-")]
    assert {"".join(one.get_text().split()).removesuffix("(1seed)") for one in labels} == set(names)
    for one in [*labels, figure._suptitle]:
        box = one.get_window_extent()
        assert -1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
        assert -1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1
    assert len(set(figures.colours_of(shown["agents"]).values())) == len(names)


def test_bars_are_sorted_and_have_their_values(drawn):
    places = {"low": (0.2, 0.5), "high": (0.8, 0.6), "free": (0.9, None), "middle": (0.5, 0.7)}
    shown = evaluation(places, ("free",), low=1, high=3)
    figure = drawn(save_bars, shown)
    coverage, reward, rotation, least = figure.axes
    assert texts(coverage.get_yticklabels()) == ["low (1 seed)", "middle", "high (3 seeds)", "free (upper bound)"]
    assert figure.get_suptitle().endswith("whiskers: 95 % intervals, with 1 seed over episodes only")
    assert texts(coverage.texts) == ["0.200", "0.500", "0.800", "0.900"]
    assert texts(rotation.texts) == ["0.500", "0.700", "0.600", "\u2013"]
    assert [bar.get_width() for bar in reward.patches] == pytest.approx([0.18, 0.48, 0.78, 0.88])
    assert [bool(bar.get_hatch()) for bar in least.patches] == [False, False, False, True]
    np.testing.assert_allclose(coverage.lines[1].get_xydata(), [[0.49, 1], [0.51, 1]])
    for axis in figure.axes:
        assert all(text.get_window_extent().x1 <= axis.bbox.x1 + 1 for text in axis.texts)  # inside the panel
    with pytest.raises(ValueError, match="no agent has any of coverage, decision_reward, rotation, least_covered"):
        drawn(save_bars, evaluation({}))


def test_the_pareto_front(drawn):
    points = {"a": (0.2, 0.8), "b": (0.1, 0.5), "c": (0.3, 0.8), "d": (0.2, 0.7), "e": (0.5, 0.9), "f": (0.1, 0.5)}
    assert figures._front(points) == ["b", "f", "a", "e"]
    places = PLACES | {"roaming": (0.85, 0.1)}  # a bound is no part of the front
    axis = drawn(save_pareto, evaluation(places, (*BOUND, "roaming"))).axes[0]
    (stairs,) = (line for line in axis.lines if line.get_drawstyle() == "steps-post")
    front = [[0, 0.33], [0.162, 0.725], [0.222, 0.811], [0.234, 0.825]]
    assert stairs.get_xydata().tolist() == [*front, [axis.get_xlim()[1], 0.825]]
    (diamond,) = (line for line in axis.lines if line.get_marker() == "D")
    assert diamond.get_xydata().tolist() == [[0.1, 0.85]]
    strong = [line for line in axis.lines if line.get_marker() == "o" and line.get_alpha() == 1]
    assert sorted(line.get_xydata()[0].tolist() for line in strong) == front
    crosses = [line.get_xydata().tolist() for line in axis.lines if len(line.get_xdata()) == 2]
    assert [pytest.approx([0.224, 0.825]), pytest.approx([0.244, 0.825])] in crosses
    assert [pytest.approx([0.234, 0.815]), pytest.approx([0.234, 0.835])] in crosses


def test_every_agent_is_in_the_legend_and_a_family_once(drawn):
    shown = evaluation(PLACES, BOUND)
    for figure in (drawn(save_pareto, shown), drawn(save_over_time, shown)):
        (axis,) = figure.axes
        assert sorted(legend(axis)) == sorted([*(set(PLACES) - set(BOUND)), "free turning (upper bound)"])
        box = axis.get_legend().get_window_extent()
        assert axis.bbox.x1 <= box.x0 < box.x1 <= figure.bbox.x1
    places = {"p:c=1": (0.7, 0.1), "p:c=0:d=2": (0.8, 0.3), "p:c=2": (0.75, 0.2), "q:c=1": (0.5, 0.5)}
    axis = drawn(save_pareto, evaluation(places)).axes[0]
    assert list(legend(axis)) == ["p", "q:c=1"]
    assert texts(axis.texts) == ["1", "2", "c=0:d=2"]
    (line,) = (line for line in axis.lines if line.get_label() == "p")
    assert line.get_xydata().tolist() == [[0.1, 0.7], [0.2, 0.75], [0.3, 0.8]]


def test_coverage_over_the_time_of_an_episode(drawn):
    shown = evaluation({"a": (0.5, 0.1), "free": (0.9, None), "low": (0.8, 0.1), "none": (0.4, 0.4)}, ("free",))
    shown["agents"]["a"]["over_time"] = [0.25, 0.5, 0.75, 0.5]
    shown["agents"]["low"]["bound"] = "lower estimate"
    del shown["agents"]["none"]["over_time"]
    axis = drawn(save_over_time, shown).axes[0]
    assert axis.lines[0].get_xydata().tolist() == [[125, 0.25], [375, 0.5], [625, 0.75], [875, 0.5]]
    assert [line.get_linestyle() for line in axis.lines] == ["-", "--", ":"]
    with pytest.raises(ValueError, match="no agent has over_time"):
        drawn(save_over_time, shown | {"agents": {"none": shown["agents"]["none"]}})


def test_heat_maps_have_a_number_in_every_cell_with_a_value(drawn):
    grid = {(n, m): evaluation(FEW, BOUND, scale=1 - 0.02 * m) for n in (3, 4, 6) for m in (5, 9)}
    del grid[3, 9]
    del grid[6, 5]["agents"]["greedy"]
    grid[4, 5]["agents"]["greedy"]["decision_reward"] = None
    figure = drawn(save_heat_maps, grid, {(4, 9): 0.6003, (6, 9): 0.57451, (9, 9): 0.1})
    shown = {axis.get_title(): axis for axis in figure.axes if axis.get_title()}
    assert list(shown) == ["still", "greedy", "trained", "hit-mac", "free turning (upper bound)"]
    greedy = shown["greedy"]
    assert (texts(greedy.get_yticklabels()), texts(greedy.get_xticklabels())) == (["3", "4", "6"], ["5", "9"])
    cells = {(*reversed(text.get_position()), *text.get_text().split("\n")) for text in greedy.texts}
    assert cells == {(0, 0, "0.632"), (1, 1, "0.575", "(-0.026)"), (2, 1, "0.575", "(+0.000)")}
    with pytest.raises(ValueError, match="no agent has a decision reward"):
        drawn(save_heat_maps, {}, {})


def test_sweeps_have_a_panel_for_each_parameter(drawn):
    low, high = (evaluation({"a": (coverage, 0.1), "free": (0.9, None)}, ("free",)) for coverage in (0.4, 0.6))
    low["agents"]["free"]["coverage"], low["scenario"] = NOTHING | {"mean": 0.8}, "site, north, hops 1.0"
    high["empty"] = 0.25
    figure = drawn(save_sweeps, {"hops": {1.0: low, 3.0: high}, "max_speed": {5.0: high}})
    first, second = figure.axes
    assert "site, north, 200 episodes, seeds 0 to 199; no targets 25.0 % of the time; bands" in figure.get_suptitle()
    assert (first.get_xlabel(), second.get_xlabel(), first.get_ylabel()) == ("hops", "max speed", "coverage")
    assert [line.get_xydata().tolist() for line in first.lines] == [[[1, 0.4], [3, 0.6]], [[1, 0.8], [3, 0.9]]]
    assert [line.get_linestyle() for line in first.lines] == ["-", "--"]
    ends = first.collections[0].get_paths()[0].vertices[:, 1]
    assert (ends.min(), ends.max()) == pytest.approx((0.39, 0.61))
    assert list(legend(second)) == ["free (upper bound)", "a"]
    (whisker,) = second.collections[1].get_segments()
    np.testing.assert_allclose(whisker, [[5, 0.59], [5, 0.61]])
    low["agents"]["a"]["coverage"] = NOTHING  # without a target in any episode
    (axis,) = drawn(save_sweeps, {"hops": {1.0: low, 3.0: high}}).axes
    np.testing.assert_array_equal(axis.lines[0].get_xydata(), [[1, np.nan], [3, 0.6]])
