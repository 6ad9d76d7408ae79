import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError, NoFrozenFormError
from skiplens.graph.dissect import dissect
from skiplens.paths.forward import PathOrders, expand_activations, expand_signal
from skiplens.paths.plan import StackPlan, activation_plan, frozen_plan, tangent_plan
from skiplens.paths.step import Step
from tests.networks import Formula, drawn, linear, noise
from tests.tolerances import assert_close


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


def normalised(formula):
    parts = {"f": nn.Conv2d(3, 3, 1), "c": nn.Conv2d(3, 3, 3), "b": nn.BatchNorm2d(3)}
    return drawn(Formula(lambda m, x: formula(m, x + m.f(x)), **parts)).eval()


READERS = {
    "alone": (lambda m, h: m.b(m.c(h)).relu(), True),
    "beside another": (lambda m, h: m.b(u := m.c(h)).relu() + u, False),
    "of what is added": (lambda m, h: (u := m.b(m.c(h))) + u.relu(), False),
    "of a shortcut": (lambda m, h: m.b(h).relu() + h, False),
    "of a view": (lambda m, h: m.b(m.c(h).transpose(2, 3)).relu(), False),
}


@pytest.mark.parametrize(("formula", "alone"), READERS.values(), ids=READERS)
def test_a_stack_is_overwritten_only_by_its_sole_reader(formula, alone):
    model, inputs = normalised(formula), noise(2, 3, 5, 5)
    plan = plan_of(model, inputs)
    readers = [node for node in plan.needed if "batch_norm" in node.name or "relu" in node.name]
    assert all(plan.is_sole_reader(node) for node in readers) == alone
    assert_close(expand_signal(plan, PathOrders()), in_new_memory(plan))


def in_new_memory(plan):
    """The same where no memory is used twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackPlan, "is_sole_reader", lambda plan, node: False)
        return expand_signal(plan, PathOrders())


def test_what_is_wanted_is_not_overwritten():
    model, inputs = normalised(lambda m, h: m.b(m.c(h)).relu()), noise(2, 3, 5, 5)
    network = dissect(model, inputs)
    output = network.node(network.output)
    wanted = [node for node in network.graph.nodes if node.name.startswith(("conv2d", "getitem"))]
    plan = activation_plan(network, output, wanted)
    stacks = expand_activations(plan, PathOrders())
    values = network.run([node.name for node in wanted])
    for node in wanted:
        assert_close(stacks[node].sum(0), values[node.name])


@pytest.mark.parametrize(("may_overwrite", "dtype"), [(True, "float64"), (False, "float64"), (True, "float32")])
def test_a_stack_is_scaled_in_its_own_memory_where_it_may_be(may_overwrite, dtype):
    stack, factor = noise(2, 3).to(getattr(torch, dtype)), noise(3, seed=1)
    expected = stack * factor
    step = Step(torch.fx.Graph().placeholder("x"), (), {}, None, {(0,): stack}, may_overwrite)
    found = step.scaled(factor)
    assert_close(found, expected)
    assert (found.data_ptr() == stack.data_ptr()) == (may_overwrite and dtype == "float64")
