import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hitmac.perception import AgentTargetEncoder, AttentionLayer, FlatEncoder
from hitmac.perception.encoder import ATTEND_OVER


def layer(**options):
    torch.manual_seed(0)
    return AttentionLayer(6, 8, **options).double()


def encoder(**options):
    torch.manual_seed(0)
    return AgentTargetEncoder(6, 8, **options).double()


def test_the_layer_is_the_papers_equations():
    attention, x = layer(), torch.randn(2, 3, 5, 6, dtype=torch.float64)
    query, key, value = (torch.tanh(linear(x)) for linear in (attention.Q, attention.K, attention.V))
    expected = torch.softmax(query @ key.transpose(-1, -2), -1) @ value
    z, global_feature = attention(x)
    torch.testing.assert_close(z, expected)
    torch.testing.assert_close(global_feature, expected.sum(-2))
    torch.testing.assert_close(layer(pooling="mean")(x)[1], expected.mean(-2))


def test_the_layer_equals_the_released_program(recording):
    record = {name: torch.from_numpy(array) for name, array in recording("hitmac_coordinator_net.npz").items()}
    embed = torch.nn.Sequential(torch.nn.Linear(4, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU())
    embed.load_state_dict(
        {name.split("features.")[1]: tensor for name, tensor in record.items() if "encoder.features" in name}
    )
    attention = AttentionLayer(128, 128)
    attention.load_state_dict(
        {name.removeprefix("weight/attention."): t for name, t in record.items() if name.startswith("weight/attention")}
    )
    with torch.no_grad():
        z, global_feature = attention(embed(record["obs"].flatten(1, 2)))
    torch.testing.assert_close(z, record["per_target"], atol=1e-5, rtol=0)
    torch.testing.assert_close(global_feature, record["global_feature"], atol=1e-4, rtol=1e-5)


def test_weights_start_xavier_uniform():
    attention = AttentionLayer(30, 50)
    bound = (6 / 80) ** 0.5
    for linear in (attention.Q, attention.K, attention.V):
        assert 0.95 * bound < linear.weight.abs().max() <= bound
        assert linear.bias.abs().max() == 0


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("shape", [(), (2,), (3, 2)])
def test_padding_changes_neither_values_nor_gradients(shape, pooling):
    attention = layer(pooling=pooling)
    x = torch.randn(*shape, 4, 6, dtype=torch.float64)
    padding = torch.full((*shape, 3, 6), torch.nan, dtype=torch.float64)
    padded = torch.cat((x, padding), -2)
    mask = torch.tensor([True] * 4 + [False] * 3).expand(*shape, 7)
    results = []
    for tokens, there in ((x, None), (padded, mask)):
        attention.zero_grad()
        tokens = tokens.clone().requires_grad_()
        z, global_feature = attention(tokens, there)
        (z[..., :4, :].square().sum() + global_feature.pow(3).sum()).backward()
        results.append((z[..., :4, :], global_feature, tokens.grad[..., :4, :], attention.Q.weight.grad.clone()))
        assert z[..., 4:, :].abs().sum() == 0
        assert tokens.grad[..., 4:, :].abs().sum() == 0
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("over", ATTEND_OVER)
def test_nothing_there_gives_finite_zeros_and_gradients(over):
    net = encoder(attend_over=over, pooling="mean")
    mask = torch.zeros(2, 3, 4, dtype=torch.bool)
    mask[1, 0, 0] = True
    features = net(torch.randn(2, 3, 4, 6, dtype=torch.float64), mask)
    assert all(feature[0].abs().sum() == 0 for feature in features)
    assert features.per_agent[1, 1:].abs().sum() == 0
    assert features.per_agent[1, 0].abs().sum() > 0
    sum(feature.sum() for feature in features).backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in net.parameters())


@pytest.mark.parametrize("over", ATTEND_OVER)
@settings(deadline=None, max_examples=15)
@given(n=st.integers(0, 5), m=st.integers(0, 5), batch=st.sampled_from([(), (2,), (3, 2)]), blocks=st.integers(1, 2))
def test_any_number_of_agents_and_targets(over, n, m, batch, blocks):
    features = encoder(attend_over=over, num_blocks=blocks)(torch.randn(*batch, n, m, 6, dtype=torch.float64))
    assert features.per_target.shape == (*batch, n, m, 8)
    assert features.per_agent.shape == (*batch, n, 8)
    assert features.global_feature.shape == (*batch, 8)
    assert all(feature.isfinite().all() for feature in features)


@pytest.mark.parametrize("over", ATTEND_OVER)
@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_order_batch_and_padding(over, pooling, blocks):
    net = encoder(attend_over=over, pooling=pooling, num_blocks=blocks)
    pairs = torch.randn(4, 3, 5, 6, dtype=torch.float64)
    whole = net(pairs)
    agents, targets = torch.randperm(3), torch.randperm(5)
    shuffled = net(pairs[:, agents][:, :, targets])
    torch.testing.assert_close(shuffled.per_target, whole.per_target[:, agents][:, :, targets])
    torch.testing.assert_close(shuffled.per_agent, whole.per_agent[:, agents])
    torch.testing.assert_close(shuffled.global_feature, whole.global_feature)
    for b in range(4):
        for one, all_ in zip(net(pairs[b]), whole, strict=True):
            torch.testing.assert_close(one, all_[b])
    padded = torch.nn.functional.pad(pairs, (0, 0, 0, 2, 0, 1), value=torch.inf)  # one more agent, two more targets
    mask = torch.zeros(4, 4, 7, dtype=torch.bool)
    mask[:, :3, :5] = True
    more = net(padded, mask)
    torch.testing.assert_close(more.per_target[:, :3, :5], whole.per_target)
    torch.testing.assert_close(more.per_agent[:, :3], whole.per_agent)
    torch.testing.assert_close(more.global_feature, whole.global_feature)


def test_agents_hear_of_each_other_unless_told_otherwise():
    pairs = torch.randn(2, 3, 6, dtype=torch.float64)
    changed = pairs.clone()
    changed[1] += 1
    for over, hears in (("agents", True), ("pairs", True), ("axes", True), ("targets", False)):
        net = encoder(attend_over=over)
        difference = (net(pairs).per_agent[0] - net(changed).per_agent[0]).abs().max()
        assert bool(difference > 1e-6) is hears


def test_gradients_are_exact():
    attention = layer()
    x = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    assert torch.autograd.gradcheck(lambda tokens: attention(tokens, mask), (x,))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: AttentionLayer(0, 8), ValueError, "feature_dim is 0; it must be a whole number, 1 or more"),
        (lambda: AttentionLayer(6, 8.0), ValueError, "weight_dim is 8.0"),
        (
            lambda: AttentionLayer(6, 8, pooling="best"),
            ValueError,
            "pooling is 'best'; it must be one of sum, mean",
        ),
        (lambda: AgentTargetEncoder(6, 8, attend_over="all"), ValueError, "attend_over is 'all'"),
        (lambda: AttentionLayer(6, 8)(torch.zeros(3, 5)), ValueError, r"x has shape \(3, 5\); it needs .* then 6"),
        (lambda: AgentTargetEncoder(6, 8)(torch.zeros(3, 6)), ValueError, "needs 2 token axes"),
        (
            lambda: AttentionLayer(6, 8)(torch.zeros(3, 6), torch.ones(4, dtype=torch.bool)),
            ValueError,
            r"mask has shape \(4,\); it must have shape \(3,\)",
        ),
        (lambda: AttentionLayer(6, 8)(torch.zeros(3, 6), [1, 1, 1]), TypeError, "mask is a list; expected a tensor"),
    ],
)
def test_bad_input(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_over_the_axes_by_hand():
    """A pair is what it is, and what the others of its agent and of its target add."""
    net = encoder(attend_over="axes")
    pairs = torch.randn(3, 4, 6, dtype=torch.float64)
    embedded, features = net.embed(pairs), net(pairs)
    for i in range(3):
        for j in range(4):
            row = net.attention(embedded[i])[0][j]
            column = net.between_agents(embedded[:, j])[0][i]
            torch.testing.assert_close(features.per_target[i, j], embedded[i, j] + row + column)
    torch.testing.assert_close(features.per_agent, features.per_target.sum(1))
    torch.testing.assert_close(features.global_feature, features.per_target.sum((0, 1)))


def test_the_blocks_by_hand():
    """The second block attends over the first one's features, after a feed-forward network."""
    net = encoder(attend_over="agents", num_blocks=2)
    pairs = torch.randn(3, 4, 6, dtype=torch.float64)
    first = net.embed(pairs)
    z, agents = net.attention(first)
    agents = agents + net.between_agents(agents)[0]
    block = net.later_blocks[0]
    one, relu, two = block.feed_forward
    again = z + two(relu(one(z + agents[:, None])))
    z, agents = block.layers[0](again)
    others, global_feature = block.layers[1](agents)
    for found, expected in zip(net(pairs), (z, agents + others, global_feature), strict=True):
        torch.testing.assert_close(found, expected)


def test_frequencies_leave_no_jump_behind_a_sensor():
    net = encoder(num_frequencies=2, embed_layers=2)
    waves = net.embed[0](torch.tensor([[0.5, -1.0]]))
    expected = [0.5, -1.0, 1, 0, 0, 0, 0, -1, -1, 1]  # sin and cos of 1 and 2 half turns of each
    torch.testing.assert_close(waves, torch.tensor([expected], dtype=waves.dtype), atol=1e-6, rtol=0)
    assert [layer.in_features for layer in net.embed if isinstance(layer, torch.nn.Linear)] == [6 * 5, 8]
    for wrong in ({"num_frequencies": -1}, {"embed_layers": 0}, {"encoder": "lstm"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            encoder(**wrong)


@pytest.mark.parametrize("over", ATTEND_OVER)
def test_a_recurrent_encoder_skips_what_is_masked(over):
    net = encoder(attend_over=over, encoder="recurrent")
    pairs = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    whole = net(pairs)
    padded = torch.nn.functional.pad(pairs, (0, 0, 0, 2), value=torch.nan)
    mask = torch.zeros(2, 3, 6, dtype=torch.bool)
    mask[..., :4] = True
    torch.testing.assert_close(net(padded, mask).global_feature, whole.global_feature)
    with pytest.raises(ValueError, match="a recurrent layer has no attention weights"):
        net(pairs, need_weights=True)


def test_the_flat_encoder():
    net = FlatEncoder(3, 4, 6, 8).double()
    pairs = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    features = net(pairs)
    assert [tuple(feature.shape) for feature in features] == [(2, 3, 4, 8), (2, 3, 8), (2, 8)]
    order = [2, 0, 1]
    torch.testing.assert_close(net(pairs[:, order]).per_agent, features.per_agent[:, order])  # agents share it
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    torch.testing.assert_close(net(pairs, mask).global_feature, features.global_feature)
    mask[0, 1, 2] = False
    hidden = pairs.clone()
    hidden[0, 1, 2] = torch.nan
    torch.testing.assert_close(net(hidden, mask).global_feature, net(pairs, mask).global_feature)
    with pytest.raises(ValueError, match="pairs are of 4 agents and 3 targets; this encoder is for 3 and 4"):
        net(pairs.transpose(1, 2))
