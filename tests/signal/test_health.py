import torch
import torch.nn.functional as F
from torch import nn

from skiplens.base.arguments import Arguments
from skiplens.signal.units import fresh_norms, repeat_difference
from tests import hugging_face
from tests.networks import Formula, LinearResidual, StochasticDepth, drawn, linear, noise
from tests.signal.looking import look

X = noise(4, 3)


def test_dropout_is_named_where_it_is_on():
    net = drawn(Formula(lambda m, x: x + m.drop(m.f(x)), f=linear(), drop=nn.Dropout(0.5)))
    reading = look(net.train(), X)
    assert reading.dropout == ("drop",) and reading.repeat_difference > 0.01
    quiet = look(net.eval(), X)
    assert quiet.dropout == () and quiet.repeat_difference == 0.0


def test_dropout_of_rate_zero_is_none():
    net = drawn(Formula(lambda m, x: x + m.drop(m.f(x)), f=linear(), drop=nn.Dropout(0.0)))
    assert look(net.train(), X).dropout == ()


def test_dropout_inside_of_attention_and_functions_is_found():
    model, inputs = hugging_face.built(hugging_face.gpt2)
    assert "transformer.h.0.attn" in look(model.train(), inputs).dropout
    bare = drawn(Formula(lambda m, x: x + F.dropout(m.f(x), 0.3, training=True), f=linear()))
    assert look(bare, X).dropout == ("Formula",)


def test_chance_without_dropout_is_seen():
    net = drawn(Formula(lambda m, x: x + m.drop(m.f(x)), f=linear(), drop=StochasticDepth()))
    reading = look(net.train(), X)
    assert reading.dropout == () and reading.repeat_difference > 0.01


def test_calls_of_a_model_that_draws_do_not_agree_by_chance():
    """One block is left out in half of all calls, so that two of them agree in every second case."""
    net = drawn(Formula(lambda m, x: x + m.f(x) * (torch.rand(()) < 0.5), f=linear()))
    for seed in range(8):
        torch.manual_seed(seed)
        assert repeat_difference(net, Arguments.of(X)) > 0.01


def test_broken_values_are_named():
    net = drawn(LinearResidual(3, 3))
    with torch.no_grad():
        net.layers[1].weight[0, 0] = float("nan")
    reading = look(net, X)
    assert reading.broken == ("parameter layers.1.weight", f"signal after {reading.block_names[1]}")
    inputs = X.clone()
    inputs[0, 0] = float("inf")
    assert look(drawn(LinearResidual(2, 3)), inputs).broken == ("input 0", "signal before the first block")


def test_an_output_that_overflows_is_named():
    net = drawn(nn.Sequential(LinearResidual(2, 3), Formula(lambda m, x: torch.exp(1e6 + x.square()))))
    assert look(net, X).broken == ("output",)


def test_fresh_batch_norms_are_those_that_never_saw_a_batch():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False))
    assert fresh_norms(net) == () and fresh_norms(net.eval()) == ("0",)
    net.train()(X)
    assert fresh_norms(net.eval()) == ()
