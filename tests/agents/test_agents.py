import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from stable_baselines3 import PPO

from hitmac.agents import AttentionPolicy, PolicyConfig, load_policy, save_policy, scripted_agent
from hitmac.agents.evaluate import evaluate
from hitmac.agents.evaluate.command import main
from hitmac.agents.evaluate.tables import markdown, table
from hitmac.agents.learned.checkpoint import build_policy
from hitmac.agents.registry import Agent, load_agent
from hitmac.envs import DEFAULT_FEATURES, Scenario, load_scenario
from hitmac.envs.tasks import CoverageTask
from hitmac.envs.wrappers.sb3_env import DirectionalSensorVecEnv

HIT_MAC = load_scenario("hit-mac")


def config(**changes):
    return PolicyConfig(
        **{
            "policy": {"weight_dim": 16},
            "features": DEFAULT_FEATURES,
            "scenario": HIT_MAC,
            "training_seeds": (1000, 1999),
        }
        | changes
    )


def observation(scenario=HIT_MAC, scenes=3, features=DEFAULT_FEATURES):
    return CoverageTask(scenario, scenes, 0, features=features).observe()


def saved(folder):
    torch.manual_seed(0)
    policy = build_policy(config(), HIT_MAC)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save_policy(folder, policy, config())
    return policy


def test_each_sensor_turns_by_its_own_feature_and_the_global_one():
    torch.manual_seed(0)
    policy = build_policy(config(policy={"weight_dim": 16, "attend_over": "targets"}), HIT_MAC)
    shown = {key: torch.from_numpy(value) for key, value in observation().items()}
    logits = torch.stack([d.logits for d in policy.get_distribution(shown).distribution], 1)  # (B, n, 3)
    features = policy.features_extractor.encoder(shown["pairs"])
    head = policy.action_net[0]
    for i in range(4):
        expected = head(torch.cat((features.per_agent[:, i], features.global_feature), -1))
        torch.testing.assert_close(logits[:, i], expected.log_softmax(-1))
    torch.testing.assert_close(policy.predict_values(shown), policy.value_net(features, None))


def test_reordering_the_sensors_reorders_the_actions():
    policy = build_policy(config(), HIT_MAC)
    shown = observation()
    order = [2, 0, 3, 1]
    actions, _ = policy.predict(shown, deterministic=True)
    other, _ = policy.predict({key: value[:, order] for key, value in shown.items()}, deterministic=True)
    assert np.array_equal(other, actions[:, order])


def test_the_encoders_start_survives_stable_baselines3():
    torch.manual_seed(0)
    model = PPO(AttentionPolicy, DirectionalSensorVecEnv("Coverage", 2), n_steps=8, batch_size=8, device="cpu")
    attention = model.policy.features_extractor.encoder.attention
    for linear in (attention.Q, attention.K, attention.V):
        gram = linear.weight @ linear.weight.T
        assert (gram - torch.diag(gram.diag())).abs().max() > 0.1  # orthogonal_ would make it diagonal
        bound = (6 / 128) ** 0.5
        assert 0.95 * bound < linear.weight.abs().max() <= bound


def test_spaces_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="the observation space is Box"):
        PPO(AttentionPolicy, "CartPole-v1")
    env = DirectionalSensorVecEnv("Coverage", 2)
    env.action_space = type(env.action_space)([3] * 5)
    with pytest.raises(
        ValueError, match=r"the action space is MultiDiscrete\(\[3 3 3 3 3\]\); for 4 sensors and 5 targets"
    ):
        PPO(AttentionPolicy, env, n_steps=8, batch_size=8)


def test_a_saved_policy_acts_the_same(tmp_path):
    policy = saved(tmp_path)
    loaded, read = load_policy(tmp_path)
    assert read == config()
    shown = {key: torch.from_numpy(value) for key, value in observation(scenes=50).items()}
    with torch.no_grad():
        for one, other in zip(policy(shown, True), loaded(shown, True), strict=True):
            assert torch.equal(one, other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "policy.safetensors"]


def test_a_policy_runs_on_other_sizes(tmp_path):
    saved(tmp_path)
    scenario = load_scenario("hit-mac-6x9")
    policy, _ = load_policy(tmp_path, scenario)
    actions, _ = policy.predict(observation(scenario), deterministic=True)
    assert actions.shape == (3, 6)


def test_a_policy_that_zooms_is_refused_where_lenses_do_not(tmp_path):
    own = PolicyConfig(
        policy={"weight_dim": 4}, features=("distance",), scenario=load_scenario("obstacles"), training_seeds=(5, 5)
    )
    save_policy(tmp_path, build_policy(own, own.scenario), own)
    with pytest.raises(ValueError, match=r"trained where lenses zoom; those of .*hit-mac' do not zoom"):
        load_policy(tmp_path, "hit-mac")


@pytest.mark.parametrize("options", [{}, {"per_sensor": True}])
def test_a_policy_of_turns_keeps_the_views_of_lenses_that_zoom(options, tmp_path):
    own = PolicyConfig(
        policy={"weight_dim": 4},
        features=("distance", "bearing"),
        scenario=load_scenario("hit-mac"),
        training_seeds=(5, 5),
        options=options,
    )
    save_policy(tmp_path, build_policy(own, own.scenario), own)
    here = load_scenario("obstacles")
    agent = load_agent(tmp_path, here)
    task = CoverageTask(here, 3, 0, features=agent.features)
    actions, _ = agent.policy.predict(task.observe(), deterministic=False)
    assert actions.shape == (3, 8)
    assert (actions[:, 4:] == 0).all()
    task.step(actions)


def test_the_nearest_agent_by_hand():
    scenario = Scenario(num_sensors=2, num_targets=2)
    task = CoverageTask(scenario, 1, 0, features=("bearing", "distance"))
    agent = scripted_agent("nearest", scenario)
    for heading, expected in (([0, 91], [1, 0]), ([180, 93], [2, 2]), ([88, 87], [0, 1]), ([-100, -80], [2, 1])):
        task.simulator.place(
            sensor_position=[(0, 0), (900, 0)], heading=heading, target_position=[(0, 100), (900, 700)]
        )
        assert agent.predict(task.observe())[0].tolist() == [expected], heading
    shown = task.observe()
    shown["mask"][:] = 0
    assert agent.predict(shown)[0].tolist() == [[0, 0]]


def test_the_simple_agents():
    shown = observation(scenes=2000, features=("bearing", "distance"))
    assert not scripted_agent("still", HIT_MAC).predict(shown)[0].any()
    drawn = scripted_agent("random", HIT_MAC, seed=1).predict(shown)[0]
    assert np.abs(np.bincount(drawn.ravel()) / drawn.size - 1 / 3).max() < 0.03
    assert np.array_equal(drawn, scripted_agent("random", HIT_MAC, seed=1).predict(shown)[0])
    with pytest.raises(ValueError, match="unknown agent 'genius': known are random, still, nearest"):
        scripted_agent("genius", HIT_MAC)


class Turner:
    """Turns sensor 0 at every sub-step and no other."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        assert (state is None) == bool(episode_start.all())
        return np.tile([1, 0, 0, 0], (len(observation["pairs"]), 1)), (np.zeros(1),)


def test_random_numbers_of_a_scene_do_not_depend_on_the_batch():
    policy = load_agent("random", load_scenario("hit-mac")).policy
    task = CoverageTask("hit-mac", 7, 0, features=["distance"])
    shown = task.observe()
    few = many = None
    for _ in range(3):
        some, few = policy.predict({key: value[:2] for key, value in shown.items()}, few)
        drawn, many = policy.predict(shown, many)
        np.testing.assert_array_equal(some, drawn[:2])
    assert len(np.unique(drawn, axis=0)) > 1
    assert not np.array_equal(drawn, policy.predict(shown, many)[0])


def test_evaluation_by_hand():
    agents = [Agent("turner", Turner(), ("bearing",)), load_agent("still", HIT_MAC)]
    result = evaluate(agents, HIT_MAC, episodes=5, seed=30, max_episode_steps=20, progress=False)
    assert (result["scenario"], result["episodes"], result["seeds"]) == ("hit-mac", 5, [30, 34])
    for name, action in (("turner", [1, 0, 0, 0]), ("still", [0, 0, 0, 0])):
        for episode in range(5):
            task = CoverageTask(HIT_MAC, 1, 30 + episode)
            coverage = []
            for _ in range(20):
                task.step(np.array([action]))
                coverage.append(task.simulator.coverage[0])
            assert result["agents"][name]["per_episode"]["coverage"][episode] == pytest.approx(np.mean(coverage))
    turner, still = result["agents"]["turner"], result["agents"]["still"]
    assert turner["rotation"] == {"mean": 0.25, "std": 0.0, "ci95": [0.25, 0.25], "iqm": 0.25, "iqm_ci95": [0.25, 0.25]}
    assert turner["average_gain"]["mean"] == pytest.approx(4 * turner["coverage"]["mean"])
    assert set(still["average_gain"].values()) == {None}
    assert turner["improvement"] is None
    assert 0 <= still["improvement"][1] <= still["improvement"][0] <= still["improvement"][2] <= 1
    low, high = turner["coverage"]["ci95"]
    assert low < turner["coverage"]["mean"] < high
    lines = table(result).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("still") for line in lines)
    assert "| - |" in markdown(result)  # it has no gain


def test_evaluation_does_not_depend_on_the_batch(monkeypatch):
    nearest = [load_agent("nearest", HIT_MAC)]
    whole = evaluate(nearest, HIT_MAC, episodes=7, max_episode_steps=15, progress=False)
    monkeypatch.setattr("hitmac.agents.evaluate.compare.SCENES_AT_ONCE", 3)
    parts = evaluate(nearest, HIT_MAC, episodes=7, max_episode_steps=15, progress=False)
    for evaluation in (whole, parts):
        del evaluation["agents"]["nearest"]["inference_ms"]
    assert parts == whole


def test_evaluation_refuses_training_seeds(tmp_path):
    saved(tmp_path)
    agent = load_agent(str(tmp_path), HIT_MAC)
    for seed in (1999, 995):
        with pytest.raises(ValueError, match="overlap with the seeds 1000 to 1999"):
            evaluate([agent], HIT_MAC, episodes=10, seed=seed, progress=False)
    with pytest.raises(ValueError, match="episodes is 0"):
        evaluate([agent], HIT_MAC, episodes=0)


def test_the_command_line(tmp_path, capsys):
    saved(tmp_path / "checkpoint")
    path = tmp_path / "result.json"
    agents = f"random,{tmp_path}"
    main(["--agents", agents, "--episodes", "3", "--max-episode-steps", "5", "--json", str(path)])
    assert str(tmp_path) in capsys.readouterr().out
    assert set(json.loads(path.read_text())["agents"]) == {"random", str(tmp_path)}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--agents", "genius"],
            "unknown agent 'genius': known are random, still, nearest, greedy, exact, planner, planner-fast, ",
        ),
        (["--agents", ""], "agents is ''; give one or more"),
        (["--scenario", "moon"], "unknown scenario 'moon': known are basketball-4"),
        (
            ["--scenario", "hit-mac,hit-mac-4x5"],
            "two scenarios are named hit-mac with 4 sensors and 5 targets; give each",
        ),
        (["--episodes", "0"], "episodes is 0; it must be a whole number, 1 or more"),
        (["--seed", "-1"], "seed is -1; it must be a whole number from 0"),
        (["--episodes", "few"], "'few'"),
        (["--colour", "red"], "--colour"),
    ],
)
def test_bad_command_lines_get_one_line(arguments, says, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.startswith("hitmac evaluate: error: ")
    assert len(message.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "policy.safetensors").unlink(), "it has no policy.safetensors"),
        (lambda f: (f / "policy.safetensors").write_bytes(b"not a tensor"), "is not a whole safetensors file"),
        (lambda f: truncate(f / "policy.safetensors"), "is not a whole safetensors file"),
        (lambda f: edit(f, lambda t: t.pop("value_net.0.bias")), "lacks the tensor value_net.0.bias"),
        (lambda f: edit(f, lambda t: t.update(spy=torch.ones(1))), "holds the unknown tensor spy"),
        (lambda f: edit(f, lambda t: t.update({"value_net.0.bias": torch.ones(3)})), r"has shape \(3,\); it must be"),
        (
            lambda f: edit(f, lambda t: t["value_net.0.bias"].fill_(torch.nan)),
            "value_net.0.bias holds something that is not a finite number",
        ),
        (lambda f: (f / "config.json").write_text("{"), "is not a JSON file"),
        (lambda f: (f / "config.json").write_text("[]"), "is not the configuration of a policy"),
        (lambda f: configure(f, version=99), "has version 99; this program reads version 3"),
        (lambda f: configure(f, extra=1), "config.json: .*extra"),
        (lambda f: configure(f, features=["smell"]), "unknown feature smell"),
        (lambda f: configure(f, policy={"optimizer_class": "os.system"}), "policy is"),
        (lambda f: configure(f, policy={"weight_dim": -3}), "weight_dim is -3"),
        (lambda f: configure(f, policy={"encoder_config": {"weight_dim": 3}}), "expected an EncoderConfig"),
        (lambda f: configure(f, training_seeds=[1]), "config.json"),
    ],
)
def test_damaged_checkpoints_are_refused(tmp_path, damage, says):
    saved(tmp_path)
    damage(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=says):
        load_policy(tmp_path)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-10])


def edit(folder, change):
    tensors = safetensors.torch.load_file(folder / "policy.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "policy.safetensors")


def configure(folder, **changes):
    plain = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(plain | changes))


def test_saving_fails_without_leaving_half_a_file(tmp_path, monkeypatch):
    saved(tmp_path)
    before = (tmp_path / "policy.safetensors").read_bytes()

    def broken(path, content):
        path.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", broken)
    with pytest.raises(OSError, match="disk full"):
        saved(tmp_path)
    assert (tmp_path / "policy.safetensors").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "policy.safetensors"]
