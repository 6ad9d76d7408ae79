import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from skiplens.base.errors import InvalidInputError, NotTwiceDifferentiableError
from skiplens.curvature.operator import loss_operator
from tests.budget_calls import least_memory
from tests.curvature.cases import SAMPLES, classes, multilayer
from tests.networks import Formula, noise


class Square(torch.autograd.Function):
    """Its second derivative is missing without a word from autograd where the gradient behind it is constant."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


def _is_differentiable_twice(operation):
    points = noise(3, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(operation(points, noise(2, 4)).sum(), points, create_graph=True)
    try:
        return bool(torch.autograd.grad(gradient.square().sum(), points))
    except RuntimeError:
        return False


without_second_derivative = pytest.mark.skipif(
    _is_differentiable_twice(torch.cdist), reason="this torch differentiates cdist twice"
)


class Distances(nn.Module):
    """Distances to learned points; torch differentiates them once."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Parameter(noise(3, 4, seed=1))

    def forward(self, x):
        return torch.cdist(x, self.points)


@without_second_derivative
def test_an_operation_without_second_derivative_is_named_with_its_module():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Distances())
    with pytest.raises(
        NotTwiceDifferentiableError, match=r"operation 'cdist' in module '2' \(Distances\) has no second"
    ):
        loss_operator(model, (noise(SAMPLES, 4), classes()), loss="cross_entropy")
    # The layer before it alone is no better: its Hessian goes through the distances too.
    with pytest.raises(NotTwiceDifferentiableError, match=r"'cdist'"):
        loss_operator(
            model, (noise(SAMPLES, 4), classes()), loss="cross_entropy", kind="gauss_newton", parameters=["0.weight"]
        )


@without_second_derivative
def test_an_operation_of_the_whole_model_or_of_the_loss():
    model = Formula(lambda m, x: torch.cdist(m.f(x), x), f=nn.Linear(4, 4))
    with pytest.raises(NotTwiceDifferentiableError, match=r"'cdist' in the model \(Formula\)"):
        loss_operator(model, (noise(3, 4), noise(3, 3)), loss="mse")
    with pytest.raises(NotTwiceDifferentiableError, match=r"'cdist' of the loss"):
        loss_operator(nn.Linear(4, 4), (noise(3, 4),) * 2, loss=lambda z, y: torch.cdist(z[:, None], y[:, None]).mean())


def test_an_operation_that_silently_drops_its_second_derivative():
    model = Formula(lambda m, x: Square.apply(m.f(x)), f=nn.Linear(4, 1))
    with pytest.raises(NotTwiceDifferentiableError, match=r"operation 'Square' in the model \(Formula\)"):
        loss_operator(model, (noise(3, 4), noise(3, 1)), loss=lambda outputs, targets: outputs.mean())


def test_losses_that_are_no_numbers():
    model, inputs = multilayer()
    data = (inputs, classes())
    with pytest.raises(InvalidInputError, match=r"tensor of shape \(\d+,\); a scalar tensor is wanted"):
        loss_operator(model, data, loss=nn.CrossEntropyLoss(reduction="none"))
    with pytest.raises(InvalidInputError, match=r"loss of a batch is a float; a scalar tensor is wanted"):
        loss_operator(model, data, loss=lambda outputs, targets: F.cross_entropy(outputs, targets).item())
    with pytest.raises(InvalidInputError, match=r"loss of a batch is nan: look for parameters"):
        loss_operator(model, data, loss=lambda outputs, targets: (outputs - outputs).log().mean() * 0)
    with pytest.raises(InvalidInputError, match=r"loss of a batch is inf"):
        loss_operator(model, (inputs, torch.full((SAMPLES, 3), float("inf"))), loss="mse")


def test_losses_that_no_gradient_flows_through():
    model, inputs = multilayer()
    for kind in ("hessian", "gauss_newton", "empirical_fisher"):
        with pytest.raises(InvalidInputError, match=r"does not depend on the chosen parameters.*detach"):
            loss_operator(model, (inputs, classes()), loss=lambda z, y: (z.argmax(1) == y).double().mean(), kind=kind)


def test_dtypes_that_cannot_be_computed_in():
    model, inputs = multilayer()
    with pytest.raises(InvalidInputError, match=r"dtype=torch.int64 cannot be differentiated in"):
        loss_operator(model, (inputs, classes()), loss="cross_entropy", dtype=torch.int64)


def test_a_model_that_wants_whole_batches():
    def formula(m, x):
        if len(x) != SAMPLES:
            raise ValueError("ten samples or none")
        return m.f(x)

    model = Formula(formula, f=nn.Linear(4, 3))
    data = noise(SAMPLES, 4), classes()
    least = least_memory(lambda memory: loss_operator(model, data, loss="cross_entropy", memory=memory))
    operator = loss_operator(model, data, loss="cross_entropy", memory=least)
    assert (operator @ torch.ones(operator.size)).isfinite().all()
