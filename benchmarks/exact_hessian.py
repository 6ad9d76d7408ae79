"""How fast are exact Hessians, their spectra and their index, against torch's own automatic differentiation?

Shortcut networks of width 10 with two matrices per branch, squared loss, float64. Autograd gets the same head start as
we do: the loss of the linear network from second moments of the data, not from 400 samples. `torch.func.hessian` runs
in chunks of 200 rows, since all at once do not fit.
"""

from collections.abc import Callable

import torch
from rows import Floor, Row, Target
from torch import Tensor
from ways import Way

from skiplens.linalg import second_moments
from skiplens.papers.li2016_shortcuts import hessian as li2016_shortcuts_hessian

WIDTH, SAMPLES, ROWS_AT_ONCE = 10, 1000, 200


def task(samples: int = 400) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, WIDTH, generator=generator, dtype=torch.float64)
    return x, torch.nn.functional.one_hot(torch.arange(samples) % WIDTH, WIDTH).double()


def near_zero(depth: int) -> Tensor:
    """0.1 times Xavier: small, but no block of the Hessian vanishes."""
    generator = torch.Generator().manual_seed(1)
    return 0.1 * torch.randn(depth, WIDTH, WIDTH, generator=generator, dtype=torch.float64) / WIDTH**0.5


def linear_loss() -> Callable[[Tensor], Tensor]:
    """The loss of the 2-shortcut linear network from second moments."""
    moments = second_moments.second_moments(*task())

    def loss(params: Tensor) -> Tensor:
        h = torch.eye(WIDTH, dtype=torch.float64)
        for W_1, W_2 in li2016_shortcuts_hessian.unflatten(params, WIDTH).unflatten(0, (-1, 2)):
            h = h + W_2 @ (W_1 @ h)
        return moments.loss(h)

    return loss


def linear_case(depth: int):
    return li2016_shortcuts_hessian.shortcut_units(near_zero(depth)), second_moments.second_moments(*task())


def closed_form(depth: int):
    case = linear_case(depth)
    return lambda: li2016_shortcuts_hessian.linear_hessian(*case)


def closed_form_again(depth: int):
    """Into a matrix that is already there, as for many Hessians along a training run."""
    case, place = linear_case(depth), closed_form(depth)()
    return lambda: li2016_shortcuts_hessian.linear_hessian(*case, out=place)


def forward_over_reverse(depth: int):
    """What torch.func.hessian does, in chunks so that it fits."""
    params, gradient = li2016_shortcuts_hessian.flatten(near_zero(depth)), torch.func.grad(linear_loss())

    def row(direction: Tensor) -> Tensor:
        return torch.func.jvp(gradient, (params,), (direction,))[1]

    return lambda: torch.func.vmap(row, chunk_size=ROWS_AT_ONCE)(torch.eye(len(params), dtype=torch.float64))


def reverse_over_reverse(depth: int):
    params = li2016_shortcuts_hessian.flatten(near_zero(depth))
    hessian = torch.func.jacrev(torch.func.grad(linear_loss()), chunk_size=ROWS_AT_ONCE)
    return lambda: hessian(params)


def some_rows(hessian):
    """Twelve rows of a large matrix."""
    return hessian[torch.linspace(0, len(hessian) - 1, 12).long()]


def spectrum(depth: int):
    make = closed_form(depth)
    return lambda: torch.linalg.eigvalsh(make())


def spectrum_by_autograd(depth: int):
    make = forward_over_reverse(depth)
    return lambda: torch.linalg.eigvalsh(make())


def solver_alone(depth: int):
    """Of a matrix that is there."""
    matrix = closed_form(depth)()
    return lambda: torch.linalg.eigvalsh(matrix)


def index(depth: int):
    """The number of negative eigenvalues without the matrix."""
    case = linear_case(depth)
    return lambda: li2016_shortcuts_hessian.linear_spectrum(*case).count_below(0.0)


def index_by_autograd(depth: int):
    make = spectrum_by_autograd(depth)
    return lambda: int((make() < 0).sum())


def rectified(depth: int):
    case = near_zero(depth), *task(SAMPLES)
    return lambda: li2016_shortcuts_hessian.rectified_hessian(*case).total()


def rectified_by_autograd(depth: int):
    relu, (x, y) = li2016_shortcuts_hessian.BranchActivations(mid="relu"), task(SAMPLES)

    def loss(params: Tensor) -> Tensor:
        return li2016_shortcuts_hessian.square_loss(
            li2016_shortcuts_hessian.shortcut_outputs(li2016_shortcuts_hessian.unflatten(params, WIDTH), x, 2, relu), y
        )

    hessian, params = (
        torch.func.jacrev(torch.func.grad(loss), chunk_size=50),
        li2016_shortcuts_hessian.flatten(near_zero(depth)),
    )
    return lambda: hessian(params)


def statistics_at_zero(units: int):
    x, y = task()

    def found():
        values = li2016_shortcuts_hessian.hessian_at_zero(x, y, units, branch_depth=1).spectrum
        return torch.tensor([values.largest, values.smallest, values.absolute_quantile(), values.index])

    return found


def _way(function, **more):
    return Way("exact_hessian", function, **{"warm": {"depth": 2}, **more})


def matrix_floor(depth):
    """Every entry written once."""
    return Floor(bytes=8 * (depth * WIDTH**2) ** 2, dtype="float64")


def eigenvalue_floor(depth):
    """Tridiagonalisation, 4/3 n³."""
    return Floor(4 / 3 * (depth * WIDTH**2) ** 3, dtype="float64")


def rectified_floor(depth):
    """One product over the samples for each block of both parts, half of them by symmetry."""
    return Floor(depth**2 * 2 * SAMPLES * WIDTH**4, dtype="float64")


def index_floor(depth):
    """Products of a unit's parameters with the maps before and after it, and the factorisation of its block."""
    unit, maps = 2 * WIDTH**2, WIDTH**2
    products = 6 * unit * maps**2 + 4 * unit**2 * maps + 4 * maps**3
    return Floor(depth // 2 * (products + unit**3 / 3), dtype="float64")


DEPTHS, SMALL = (16, 48, 96), (2, 4)
AUTOGRAD, SOLVER = "torch.func.hessian", "eigvalsh of a matrix that is there"
HESSIANS = {
    AUTOGRAD: _way("forward_over_reverse", repeats=1, keep="some_rows"),
    "torch.func, reverse over reverse": _way("reverse_over_reverse", repeats=1, keep="some_rows"),
}
ROWS = [
    Row(
        "hessian-linear",
        "exact Hessian, linear 2-shortcut network, into new memory",
        _way("closed_form", keep="some_rows"),
        DEPTHS,
        SMALL,
        HESSIANS,
        "depth",
        matrix_floor,
        targets=(Target("≥ 20 × torch.func.hessian", AUTOGRAD, least=20),),
        tolerance=1e-12,
        held_back="being handed new memory by the system, even in huge pages, takes a quarter of the time",
    ),
    Row(
        "hessian-linear-again",
        "exact Hessian, linear 2-shortcut network, into a matrix that is there",
        _way("closed_form_again", keep="some_rows"),
        DEPTHS,
        SMALL,
        {AUTOGRAD: HESSIANS[AUTOGRAD]},
        "depth",
        matrix_floor,
        targets=(Target("≥ 20 × torch.func.hessian", AUTOGRAD, least=20),),
        tolerance=1e-12,
    ),
    Row(
        "hessian-spectrum",
        "all eigenvalues of that Hessian",
        _way("spectrum", repeats=1),
        DEPTHS,
        SMALL,
        {
            "torch.func.hessian and eigvalsh": _way("spectrum_by_autograd", repeats=1),
            SOLVER: _way("solver_alone", repeats=1),
        },
        "depth",
        eigenvalue_floor,
        targets=(
            Target("≤ 1.1 × the eigenvalue solver alone", SOLVER, least=1 / 1.1),
            Target("≥ 1.3 ×", "torch.func.hessian and eigvalsh", least=1.3),
        ),
        tolerance=1e-11,
        held_back="nearly all of our time and nine tenths of the other's are the dense eigenvalue solver, which is as "
        "fast as products of matrices allow; the two-stage reduction of OpenBLAS takes 1.1 times as long at this size. "
        "The couplings of the Hessian have rank 100, as large as its blocks, so its structure helps counting "
        "eigenvalues but not finding all of them",
    ),
    Row(
        "hessian-index",
        "share of negative eigenvalues alone",
        _way("index", repeats=5),
        DEPTHS,
        SMALL,
        {"torch.func.hessian and eigvalsh": _way("index_by_autograd", repeats=1, size=48, grows=3)},
        "depth",
        index_floor,
        targets=(Target("≥ 4 ×", "torch.func.hessian and eigvalsh", least=4),),
        tolerance=0,
    ),
    Row(
        "hessian-relu",
        "exact Hessian, mid-ReLU 2-shortcut network",
        _way("rectified"),
        (4, 8, 16),
        (2, 4),
        {"torch.func": _way("rectified_by_autograd", repeats=1)},
        "depth",
        rectified_floor,
        targets=(Target("≥ 20 ×", "torch.func", least=20),),
        tolerance=1e-12,
        held_back="two thirds of the time are products of 100 columns over the samples, too small for full speed; at "
        "depth 96 they are 184 billion operations, 3.2 of the 5 s that are wanted at the 57 billion a second of hot "
        "ones, and the maps between the matrices take a second more",
    ),
    Row(
        "hessian-at-zero",
        "statistics of the Hessian at zero, 1-shortcut units of width 10",
        Way("exact_hessian", "statistics_at_zero", warm={"units": 2}, repeats=1),
        (100, 1000, 10_000),
        (3, 6),
        axis="units",
    ),
]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
