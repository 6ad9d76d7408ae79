import pytest
import torch
from torch import nn

from skiplens.core.errors import InvalidInputError, NoFrozenFormError
from skiplens.derivatives.polynomial import frozen_plan, tangent_plan
from skiplens.residual import dissect
from tests.networks import Formula, drawn, linear, noise


def plan_of(model, inputs, make=frozen_plan):
    network = dissect(model, inputs)
    return make(network, network.node(network.output))


def test_an_operation_without_a_frozen_form_is_named_and_the_jacobian_offered():
    model = nn.Sequential(drawn(Formula(lambda m, x: x + torch.sigmoid(m.f(x)), f=linear())), nn.Sigmoid())
    with pytest.raises(NoFrozenFormError, match=r"aten.sigmoid in '0' has no frozen form.*Ask for of='jacobian'"):
        plan_of(model, noise(2, 3))
    assert plan_of(model, noise(2, 3), tangent_plan).needed


def test_probabilities_have_no_frozen_form():
    model = nn.Sequential(linear(), nn.Softmax(-1))
    with pytest.raises(NoFrozenFormError, match=r"aten.softmax in '1'.*logits instead of probabilities"):
        plan_of(model, noise(2, 3))


def test_dropout_in_training_mode_is_refused():
    model = Formula(lambda m, x: x + m.drop(m.f(x)), f=linear(), drop=nn.Dropout(0.5)).train()
    with pytest.raises(InvalidInputError, match=r"draws at random \(aten.native_dropout in 'drop'.*model.eval\(\)"):
        plan_of(model, noise(2, 3))


def test_integers_that_no_embedding_reads_are_refused():
    model = Formula(lambda m, x: m.f(torch.nn.functional.one_hot(x, 3).double()), f=linear())
    with pytest.raises(InvalidInputError, match=r"No floating number flows.*no embedding reads them"):
        plan_of(model, torch.tensor([0, 1]))


def test_an_output_without_a_derivative_is_refused():
    model = Formula(lambda m, x: m.f(torch.sign(x).bool().double()), f=linear())
    with pytest.raises(InvalidInputError, match="has no derivative with respect to the inputs"):
        plan_of(model, noise(2, 3), tangent_plan)


def test_integer_inputs_start_at_their_embedding():
    def formula(m, ids):
        h = m.words(ids) + m.positions(torch.arange(ids.shape[1]))
        return h + m.f(h)

    model = drawn(Formula(formula, words=nn.Embedding(7, 3), positions=nn.Embedding(5, 3), f=linear()))
    plan = plan_of(model, torch.tensor([[1, 2, 6]]))
    assert [node.name for node in plan.sources] == ["embedding"]  # the positions depend on no input: they are constants
