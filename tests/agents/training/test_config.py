"""Options of trainings: defaults that depend on each other and on the scene, and values that are refused."""

import dataclasses
import re
from pathlib import Path

import pytest

from hitmac import train
from hitmac.agents.tracking.features import BELIEFS
from hitmac.agents.training import config
from hitmac.agents.training.sweep import check_group
from hitmac.envs import DEFAULT_FEATURES, load_scenario, presets
from hitmac.envs.observation import FEATURE_SETS
from hitmac.envs.tasks import CoverageTask
from hitmac.envs.validation import field_types

KINDS = {**config.JOBS, config.HitMacOptions.job: config.HitMacOptions}
FLAT = ["--start", "pretrained:flat"]
RECURRENT = ["--memory", "recurrent"]
IMITATED = ["transport", "--algorithm", "imitation"]


# --- defaults ---


@pytest.mark.parametrize("job", sorted(set(KINDS)))
def test_presets_are_whole_and_name_options_only(job):
    presets, fields = KINDS[job].presets, {field.name for field in dataclasses.fields(KINDS[job])}
    (names,) = {frozenset(preset) for preset in presets.values()}
    assert names == {*config._PRESETS[job]} - {"situations"} <= fields
    other = {field.name for field in dataclasses.fields(config.RunOptions)} | config.NO_LIMIT.keys()
    for name in fields - names - other:  # of the machine, or off
        assert getattr(KINDS[job], name) in (None, False, 0, "none", "sb3", 15.0), name


def test_the_levels_of_hit_mac_have_defaults_of_their_own():
    executor, coordinator = config.levels(config.HitMacOptions(seed=3), Path("runs/x"))
    of_executor = executor.scenario, executor.goals_every, executor.centring, executor.goal_share, executor.features
    assert of_executor == ("hit-mac", 30, 0.2, 0.5, config.ExecutorOptions.features)
    assert (executor.seed, coordinator.seed, coordinator.executor) == (3, 3, "runs/x/executor")
    assert (executor.algorithm, coordinator.algorithm, coordinator.credit) == ("ppo", "ppo", "difference_rewards")
    assert (coordinator.features, coordinator.idle, coordinator.num_blocks) == (DEFAULT_FEATURES, "hold", 2)

    imitation = config.with_defaults(config.HitMacOptions, "imitation")
    executor, coordinator = config.levels(imitation, Path("runs/x"))
    assert (executor.scenario, executor.goals_every, executor.goal_share) == ("hit-mac", 10, 0.8)
    assert (executor.features, coordinator.features) == (config.GOAL_FEATURES, DEFAULT_FEATURES)
    assert coordinator.idle == "hold"
    assert (config.with_limits(executor).total_steps, config.with_limits(coordinator).total_steps) == (512_000, 70_400)
    assert config.with_limits(dataclasses.replace(executor, total_steps=9)).minutes is None
    both = config.levels(dataclasses.replace(imitation, features="frame"), Path("runs/x"))
    assert tuple(level.features for level in both) == (config.ExecutorOptions.features, FEATURE_SETS["frame"])


def test_actions_hold_except_where_a_memory_counts_sub_steps():
    reward = config.JOBS["coverage-ppo"]()
    assert reward.held == reward.frame_skip > 1
    assert dataclasses.replace(reward, memory="recurrent").held == 1
    assert dataclasses.replace(reward, algorithm="imitation").held == 1
    assert config.JOBS["transport"](algorithm="imitation", frame_skip=4).held == 4
    with pytest.raises(ValueError, match="--frame-skip is 3; it is always 1 by imitation of a planner and with a"):
        config.completed(config.JOBS["coverage"](frame_skip=3), {"frame_skip"}, load_scenario("hit-mac"))


def test_both_levels_of_a_game_observe_beliefs_by_default():
    game = load_scenario("mate-4v8-9")
    for algorithm, decision, goals_every in (("imitation", 1, 10_000), ("ppo", 10, 60)):
        asked = config.completed(config.HitMacOptions(algorithm=algorithm), {"algorithm"}, game)
        executor, coordinator = config.levels(asked, Path("runs/x"), game)
        assert executor.features == coordinator.features == BELIEFS
        assert (coordinator.decision, executor.goals_every) == (decision, goals_every)
        config.check_on(executor, game)
    with pytest.raises(ValueError, match="--features is beliefs, which is supported only for"):
        config.check_on(executor, load_scenario("hit-mac"))
    chosen = config.completed(config.HitMacOptions(features="motion"), {"features"}, game)
    assert config.levels(chosen, Path("runs/x"), game)[0].goals_every == 30


def test_where_there_are_obstacles_policies_observe_lines_of_sight_by_default():
    asked = config.JOBS["coverage"](features=("bearing",))
    clear, site = load_scenario("hit-mac"), load_scenario("obstacles")
    assert config.completed(asked, set(), clear).features == DEFAULT_FEATURES
    assert config.completed(asked, set(), site).features == FEATURE_SETS["site"]
    assert config.completed(asked, {"features"}, site).features == ("bearing",)
    for more in ({"start": "pretrained:flat"}, {"memory": "recurrent"}):
        assert "in_sight" not in config.completed(dataclasses.replace(asked, **more), set(), site).features
    for changes in ({"walls": [(0, 0, 1, 1)]}, {"blocks": (2, 2), "street_width": 100.0}, {"discs": [(0, 0, 9)]}):
        assert "in_sight" in config.completed(asked, set(), clear.replace(**changes)).features
    zone = {"zones": [[(0, 0), (9, 0), (0, 9)]], "zone_values": [5]}
    assert config.completed(asked, set(), clear.replace(**zone)).features == (*DEFAULT_FEATURES, "value")
    assert config.completed(asked, set(), site.replace(**zone)).features == (*FEATURE_SETS["site"], "value")


@pytest.mark.parametrize("scenario", ["hit-mac", "obstacles"])
@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"turn_rates": 40.0}, {"rate", "pending_turn"}),
        ({"zoom": (30, 120)}, {"relative_bearing", "relative_distance"}),
        ({"tilt_limits": [(5, 75)], "mount_height": 100}, {"tilt", "beyond_edges"}),
    ],
)
def test_policies_and_environments_observe_what_sensors_can_do_by_default(scenario, changes, shown):
    scenario = load_scenario(scenario).replace(**changes)
    assert shown <= set(config.completed(config.JOBS["coverage"](), set(), scenario).features)
    assert shown <= set(CoverageTask(scenario, 1, 0).observer.features)


def test_new_policies_of_a_game_learn_on_beliefs_by_default():
    asked, game = config.JOBS["coverage"](teacher="planner"), load_scenario("mate-4v8-9")
    found = config.completed(asked, {"teacher"}, game)
    assert (found.features, found.teacher, found.planner_turn_cost) == (BELIEFS, "planner", 0.02)
    config.check_on(found, game)
    for more in ({"start": "pretrained:flat"}, {"memory": "recurrent"}, {"algorithm": "ppo"}, {"per_sensor": True}):
        assert config.completed(dataclasses.replace(asked, **more), set(), game).features != BELIEFS
    for other in (config.JOBS["coverage-ppo"](), config.JOBS["coverage-ppo"](algorithm="imitation")):
        assert config.completed(other, set(), game).features == FEATURE_SETS["site"]


@pytest.mark.parametrize("job", sorted(config.JOBS))
def test_sizes_suit_the_scene(job):
    for algorithm, most in config.PAIRS.items():
        options = config.with_defaults(config.JOBS[job], algorithm)
        for name in ("hit-mac", "hit-mac-6x9", f"large-5x{most // 5}"):
            assert config.scaled(options, load_scenario(name)) == options
        for name in (*presets(), "large-20x30", f"large-5x{most // 5 + 1}"):
            scenario = load_scenario(name)
            scaled = config.scaled(options, scenario)
            pairs = scenario.num_sensors * scenario.num_targets
            rows = options.task.spec.role in ("executor", "targets")
            of_row = 4 * scenario.num_targets if rows else pairs
            assert 8 <= scaled.num_envs <= max(8, options.num_envs * min(1, most / pairs)), name
            assert 8 <= scaled.batch_size <= max(8, options.batch_size * min(1, most / of_row)), name


@pytest.mark.parametrize(
    ("arguments", "teacher", "features"),
    [
        (["--knowledge", "shared"], "belief-planner-fast", BELIEFS),
        (["--scenario", "volleyball-6"], "belief-planner-fast", BELIEFS),
        (["--knowledge", "shared", "--features", "motion"], "belief-planner-fast", ("motion",)),
        (["--knowledge", "shared", "--nearest", "3"], "planner", DEFAULT_FEATURES),
        (["--knowledge", "shared", "--per-sensor"], "planner", DEFAULT_FEATURES),
        (["--knowledge", "shared", "--set", "identities=false"], "planner", DEFAULT_FEATURES),
        (["--knowledge", "own"], "belief-planner-fast", BELIEFS),
        (["--knowledge", "neighbours"], "belief-planner-fast", BELIEFS),
        (["--scenario", "hit-mac-4x5000", "--knowledge", "shared"], "planner", DEFAULT_FEATURES),
        (["--scenario", "obstacles"], "planner-fast", FEATURE_SETS["site"]),
        (["--scenario", "obstacles", "--set", "zoom=[]"], "planner", FEATURE_SETS["site"]),
        ([], "planner", DEFAULT_FEATURES),
    ],
)
def test_the_teacher_and_the_features_suit_the_scene(arguments, teacher, features, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = []
    monkeypatch.setattr(train, "train_run", lambda options, scenario: found.append(options))
    train.run_command(["coverage", *arguments, "--run-dir", "x"])
    assert (found[0].teacher, found[0].features) == (teacher, features)


def test_options_that_are_given_win(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = []
    monkeypatch.setattr(train, "train_run", lambda options, scenario: found.append(options))
    for given in ([], ["--batch-size", "48"], ["--num-envs", "256"]):
        train.run_command(["coverage", "--scenario", "large", "--run-dir", f"x{len(found)}", *given])
    assert [(one.num_envs, one.batch_size, one.rollout_steps) for one in found] == [
        (16, 8, 4), (16, 48, 4), (256, 8, 4)
    ]  # fmt: skip
    train.run_command(["hit-mac", "--scenario", "large", "--run-dir", "both"])
    both = config.levels(found.pop(), Path("both"), load_scenario("large"))
    assert [(one.num_envs, one.batch_size) for one in both] == [(8, 424), (8, 8)]
    asked = ["--algorithm", "imitation", "--idle", "random", "--num-envs", "8"]
    train.run_command(["coordinator", *asked, "--run-dir", "y"])
    assert (found[-1].idle, found[-1].num_envs, found[-1].epochs) == ("random", 8, 8)


def test_features_may_be_named_as_a_set_also_where_the_policy_to_start_from_has_them():
    asked = config.with_defaults(config.JOBS["coverage"], "imitation", start="pretrained:flat")
    config.check_on(dataclasses.replace(asked, features=("motion",)), load_scenario("hit-mac"))


@pytest.mark.parametrize(("given", "means"), [
    (["--seeds", "0..9"], ["--seed", "0", "--seeds", "10"]),
    (["--seeds=3..3"], ["--seed", "3", "--seeds", "1"]),
    (["--minutes", "1", "--seeds", "2..4", "--resume"], ["--minutes", "1", "--seed", "2", "--seeds", "3", "--resume"]),
    (["--seeds", "3"], ["--seeds", "3"]),
    (["--run-dir", "1..2"], ["--run-dir", "1..2"]),
])  # fmt: skip
def test_a_range_of_seeds_is_the_first_and_their_number(given, means):
    assert config.with_seed_range(given) == means


# --- what is refused ---


@pytest.mark.parametrize("job", KINDS.values(), ids=KINDS)
def test_numbers_out_of_range_are_refused(job):
    kinds = {name: re.search(r"\b(int|float)\b", str(hint)) for name, hint in field_types(job).items()}
    for name, kind in kinds.items():
        for value in [-1] if kind and kind[0] == "int" else [float("inf"), float("nan"), -1.0] if kind else []:
            with pytest.raises((ValueError, TypeError)) as error:
                config.check(dataclasses.replace(job(), **{name: value}))
            assert f"--{name.replace('_', '-')} is {value}" in str(error.value)
            assert "\n" not in str(error.value)
    for algorithm in ("ppo", "imitation"):
        check_group(config.with_defaults(job, algorithm))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["chess"], f"unknown job 'chess': known are {', '.join(config.JOBS)}, hit-mac"),
        (["--colour", "red"], "--colour"),
        (["hit-mac", "--minutes", "5"], "; it is an option of coverage, coverage-ppo, executor, coordinator"),
        (["duel", "--seed", "1000"], "--seed is 1000; it must be 0 to 999"),
        (["hit-mac", "--algorithm", "a2c"], "--algorithm is a2c; it must be ppo or imitation"),
        (["--minutes", "0"], "--minutes is 0.0; it must be over 0"),
        (["--epochs", "0"], "--epochs is 0; it must be 1 or more"),
        (["--batch-size", "1"], "--batch-size is 1; it must be 2 or more"),
        (["--gamma", "1.01"], "--gamma is 1.01; it must be 0 to 1"),
        (["--num-envs", "65537"], "--num-envs is 65537; it must be 1 to 65536"),
        (["--rollout-steps", "1e12"], "--rollout-steps"),
        (
            ["coordinator", "--critic", "judge"],
            "--critic is judge; it must be one of amc, no_prefix, scene, value_head",
        ),
        (["executor", "--padding", "none"], "--padding is none; it must be one of attended, masked, unfiltered"),
        (["executor", "--goal-share", "nan"], "--goal-share is nan; it must be a finite number, 0 to 1"),
        (["hit-mac", "--features", "smell"], "--features is smell; it must be one of hit-mac, frame, motion"),
        (["--scenario", "moon"], "unknown scenario 'moon': known are basketball-4"),
        (["--device", "gpu"], "--device is"),
        (["coordinator", "--executor", "nobody"], "unknown executor 'nobody': known are scripted, random, still"),
        (["coordinator", "--executor", "still"], "--executor is still; it must be scripted or the directory of a run"),
        (["--memory", "gru"], "--memory is gru; it must be none or recurrent"),
        (["coverage-ppo", *RECURRENT], "--memory recurrent requires --knowledge shared"),
        (RECURRENT, "--memory recurrent requires --knowledge shared; the scenario has the knowledge full"),
        ([*RECURRENT, "--features", "motion"], "--features motion cannot be combined with --memory recurrent"),
        ([*RECURRENT, "--per-sensor"], "--memory recurrent cannot be combined with --per-sensor"),
        ([*RECURRENT, "--weight-dim", "7"], "--weight-dim is 7;"),
        ([*RECURRENT, "--nearest", "2"], "--nearest 2 cannot be combined with --memory recurrent"),
        (["--radius", "9"], "--radius 9.0 requires --nearest"),
        (["--nearest", "2", "--encoder", "mlp"], "--nearest is 2;"),
        (["executor", "--features", "beliefs"], "--features is beliefs, which is supported only"),
        (["--start", "pretrained:flatt"], "unknown pretrained policy 'flatt' (did you mean flat?): known are "),
        (["executor", *FLAT], "--start is pretrained:flat, a policy for Coverage; it must be one for Executor"),
        ([*FLAT, "--weight-dim", "32"], "--weight-dim is 32; the policy pretrained:flat has 64"),
        ([*FLAT, "--features", "frame"], "--features is"),
        ([*FLAT, "--scenario", "obstacles"], "the scenario 'obstacles' requires turn, zoom"),
        (["--seeds", "4..2"], "--seeds is 4..2"),
        (["--seed", "1", "--seeds", "1..2"], "leave out --seed"),
        (["--seeds", "9999999..9999999"], "--seed is 9999999"),
        (["--ray", "local"], "--ray requires several trainings"),
        (["--num-env-runners", "2"], "--num-env-runners 2 requires --engine rllib"),
        (["--address", "auto"], "--address auto requires --engine rllib"),
        (["--opponent", "greedy"], "scenario 'hit-mac' is not a game of two teams, such as mate-4v8-9"),
        (["transport", "--scenario", "hit-mac"], "scenario 'hit-mac' is not a game of two teams"),
        (["transport", "--opponent", "nobody"], "unknown agent 'nobody'"),
        ([*IMITATED, "--teacher", "nobody"], "unknown team of targets 'nobody'"),
        (["transport", "--encoder", "mlp"], "--encoder is mlp; for targets it must be attention"),
        (["transport", "--features", "motion"], "--features is motion; it must be entities for targets"),
        (["--features", "entities"], "--features is entities; entities are only for targets"),
        (["duel", "--scenario", "hit-mac"], "--scenario hit-mac is not a game of two teams, such as mate-4v8-9"),
        (["duel", "--seeds", "2"], "--seeds and --sweep do not apply to the job duel; run it once for each seed"),
        (["--sweep", "pooling"], "--sweep is 'pooling'; it must have the form pooling=sum,mean"),
        (["--sweep", "poling=sum,mean"], "--sweep names the unknown option 'poling' (did you mean pooling?)"),
        (["--sweep", "seed=1,2"], "--sweep names seed,"),
        (["--sweep", "algorithm=ppo,imitation"], "--sweep names algorithm,"),
        (["--sweep", "nearest=2,3"], "--sweep names nearest,"),
        (["--sweep", "frame-skip=1,3"], "--frame-skip is 3; it is always 1 by imitation of a planner"),
        (["--sweep", "pooling=sum,sum"], "has 'sum' twice"),
        (["--sweep", "pooling=sum", "--sweep", "pooling=mean"], "--sweep names pooling twice"),
        (["--sweep", "scaled=perhaps"], "--sweep scaled=perhaps; it must be true or false"),
        (["--sweep", "weight_dim=8,many"], "--sweep weight_dim: error:"),
        (["--sweep", "weight_dim=8,0"], "weight_dim=0: --weight-dim is 0"),
    ],
)
def test_options_that_are_refused(arguments, says, refused):
    assert says in refused(*arguments)


def test_all_that_is_wrong_is_in_one_error():
    with pytest.raises((ValueError, TypeError), match=r"(?s)--num-envs is 0.*--gamma is 2"):
        config.check(config.ExecutorOptions(num_envs=0, gamma=2))


def test_levels_and_single_sensors_need_identities(refused, tmp_path):
    scene = tmp_path / "nameless.yaml"
    scene.write_text("identities: false")
    for job in (["executor"], ["coverage", "--per-sensor"]):
        assert "identities is false, which is supported only for a policy" in refused(*job, "--scenario", str(scene))
