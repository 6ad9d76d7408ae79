"""What does the learning-rate grid of figure 7 of 'Demystifying ResNet' cost as one program, and one by one?

2-shortcut networks of width 10 on whitened digits, 21 learning rates and 5 starts, full-batch gradient descent for 1000
epochs. Linear networks see the second moments of the digits, in float64; those with ReLUs see 1,000 digits, in float32,
9 rates, 3 starts and 100 epochs. The rates are those at which nothing diverges, so that every network makes all epochs
everywhere. One after the other means a loop over networks with torch's autograd, or with our own instructions; it is
timed on two networks and multiplied. The floor is that of the products of matrices, three for each matrix and epoch, at
the speed of large ones: on 10×10 matrices no library comes near to it.
"""

import torch
from rows import Floor, Row, Target
from ways import Way

from skiplens.base.randomness import Randomness
from skiplens.data.images import sample
from skiplens.data.preprocessing import fit_whitening
from skiplens.linalg.second_moments import second_moments
from skiplens.training.batched.chains import train_linear_networks, train_rectified_networks
from skiplens.training.batched.plan import BatchedPlan, drawn_starts
from skiplens.zoo.weight_laws import scaled, xavier_weights

WIDTH = 10
LINEAR_EPOCHS, RECTIFIED_EPOCHS = 1000, 100
SAMPLES = 1000
SOME = (0, -1)
"""The networks that are trained one after the other: the smallest rate and the largest."""


def digits(samples=None):
    found = sample()
    images, labels = found.images[:samples], found.labels[:samples]
    return fit_whitening(images, WIDTH)(images), torch.nn.functional.one_hot(labels, WIDTH).double()


def grid(depth, rates, starts):
    drawn = drawn_starts(
        scaled(xavier_weights, 0.01), depth, WIDTH, [Randomness(0).child(net) for net in range(starts)]
    )
    exponents = torch.linspace(-4, -1, rates, dtype=torch.float64)
    return drawn.repeat(rates, 1, 1, 1), (10**exponents).repeat_interleave(starts)


def linear(depth):
    case = *grid(depth, 21, 5), second_moments(*digits()), BatchedPlan(LINEAR_EPOCHS)
    return lambda: train_linear_networks(*case).weights


def linear_one_by_one(depth):
    """Our own instructions, for one network after the other."""
    (starts, rates), moments = grid(depth, 21, 5), second_moments(*digits())

    def networks():
        parts = [slice(net % len(starts), net % len(starts) + 1) for net in SOME]
        found = [
            train_linear_networks(starts[part], rates[part], moments, BatchedPlan(LINEAR_EPOCHS)) for part in parts
        ]
        return torch.cat([runs.weights for runs in found])

    return networks


def linear_by_autograd(depth):
    (starts, rates), moments = grid(depth, 21, 5), second_moments(*digits())

    def loss(weights):
        h = torch.eye(WIDTH, dtype=torch.float64)
        for W_1, W_2 in weights.unflatten(0, (-1, 2)):
            h = h + W_2 @ (W_1 @ h)
        return moments.loss(h)

    return lambda: torch.stack([descend(loss, starts[net], rates[net].item(), LINEAR_EPOCHS) for net in SOME])


def rectified(depth):
    starts, rates = grid(depth, 9, 3)
    case = starts.float(), rates, digits(SAMPLES), BatchedPlan(RECTIFIED_EPOCHS)
    return lambda: train_rectified_networks(*case).weights


def rectified_by_autograd(depth):
    (starts, rates), (x, y) = grid(depth, 9, 3), (tensor.float() for tensor in digits(SAMPLES))

    def loss(weights):
        h = x
        for W_1, W_2 in weights.unflatten(0, (-1, 2)):
            h = h + torch.relu(h @ W_1.T) @ W_2.T
        return (h - y).square().sum() / (2 * len(x))

    chosen = starts.float()
    return lambda: torch.stack([descend(loss, chosen[net], rates[net].item(), RECTIFIED_EPOCHS) for net in SOME])


def descend(loss, weights, rate, epochs):
    weights = weights.clone().requires_grad_()
    for _ in range(epochs):
        (gradient,) = torch.autograd.grad(loss(weights), weights)
        with torch.no_grad():
            weights -= rate * gradient
    return weights.detach()


def some(weights):
    """The networks that the others train too."""
    return weights[list(SOME)]


def products_floor(networks, epochs, columns, dtype):
    """Three products for each matrix and epoch: forwards, backwards, and the gradient."""
    return lambda depth: Floor(3 * depth * 2 * WIDTH**2 * columns * networks * epochs, dtype=dtype)


def _way(function, **more):
    return Way("learning_rate_grid", function, **{"warm": {"depth": 2}, **more})


AUTOGRAD, OWN = "one after the other, autograd", "one after the other, our instructions"
TWO_OF_105, TWO_OF_27 = {"share": 2 / 105, "repeats": 1}, {"share": 2 / 27, "repeats": 1}
ROWS = [
    Row(
        "learning-rates-linear",
        "105 linear 2-shortcut networks, 1000 epochs",
        _way("linear", keep="some"),
        (16, 48, 96),
        (2, 4),
        {AUTOGRAD: _way("linear_by_autograd", **TWO_OF_105), OWN: _way("linear_one_by_one", **TWO_OF_105)},
        "depth",
        products_floor(105, LINEAR_EPOCHS, WIDTH, "float64"),
        targets=(Target("≥ 10 × one network after the other", AUTOGRAD, least=10),),
        tolerance=1e-9,
        held_back="the overhead of torch's small operations is less than it was",
    ),
    Row(
        "learning-rates-relu",
        "27 mid-ReLU 2-shortcut networks, 1,000 digits, 100 epochs",
        _way("rectified", keep="some"),
        (8, 16, 32),
        (2, 4),
        {AUTOGRAD: _way("rectified_by_autograd", **TWO_OF_27)},
        "depth",
        products_floor(27, RECTIFIED_EPOCHS, SAMPLES, "float32"),
        tolerance=1e-3,
    ),
]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
