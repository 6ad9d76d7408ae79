"""Monomials of several variables as sorted index tuples in lexicographic order, and polynomials over them."""

import functools
import math

import torch
from torch import Tensor

from skiplens.core.axes import Float, Int


def count(variables: int, degree: int) -> int:
    """How many monomials of exactly that degree there are."""
    return math.comb(variables + degree - 1, degree)


def table(points: Float[Tensor, "points variables"], degree: int) -> list[Tensor]:
    """Values of all monomials of degree 0, 1 .. `degree`, a (points, monomials) tensor for each; differentiable.

    The tuples that may follow a first index i are those that start at i or later: a suffix of the next lower degree.
    """
    variables = points.shape[1]
    tables = [torch.ones_like(points[:, :1])]
    for r in range(1, degree + 1):
        lower = tables[-1]
        suffixes = [count(variables - i, r - 1) for i in range(variables)]
        tables.append(torch.cat([points[:, i : i + 1] * lower[:, -n:] for i, n in enumerate(suffixes)], 1))
    return tables


@functools.lru_cache(maxsize=32)
def log_multinomials(variables: int, degree: int) -> Float[Tensor, " monomials"]:
    """The log of (r!/∏ a_i!) of each monomial of the degree: in how many orders its factors can stand."""
    tuples = index_tuples(variables, degree)
    run = torch.ones(len(tuples), dtype=torch.float64)
    log_repeats = torch.zeros(len(tuples), dtype=torch.float64)
    for position in range(1, degree):
        same = tuples[:, position] == tuples[:, position - 1]
        run = torch.where(same, run + 1, torch.ones_like(run))
        log_repeats = log_repeats + run.log()
    return math.lgamma(degree + 1) - log_repeats


def derivative(coefficients: Float[Tensor, "monomials ..."], variables: int, degree: int) -> Tensor:
    """Coefficients of the partial derivatives of a form of the degree: (monomials one degree lower, variables, …)."""
    tuples = index_tuples(variables, degree).to(coefficients.device)
    lower = count(variables, degree - 1)
    out = coefficients.new_zeros(lower * variables, *coefficients.shape[1:])
    for position in range(degree):
        rest = torch.cat([tuples[:, :position], tuples[:, position + 1 :]], 1)
        out.index_add_(0, _rank(rest, variables) * variables + tuples[:, position], coefficients)
    return out.reshape(lower, variables, *coefficients.shape[1:])


@functools.lru_cache(maxsize=32)
def index_tuples(variables: int, degree: int) -> Int[Tensor, "monomials degree"]:
    """The sorted index tuples, one for each monomial."""
    if degree == 0:
        return torch.zeros(1, 0, dtype=torch.long)
    return torch.combinations(torch.arange(variables), degree, with_replacement=True).reshape(-1, degree)


def _rank(tuples: Int[Tensor, "monomials degree"], variables: int) -> Int[Tensor, " monomials"]:
    """The place of each sorted tuple in lexicographic order."""
    degree = tuples.shape[1]
    places = variables + degree - 1
    rank = torch.full(tuples.shape[:1], count(variables, degree) - 1, device=tuples.device)
    for position in range(degree):
        later = [math.comb(places - 1 - c, degree - position) for c in range(places)]
        choices = torch.tensor(later, device=tuples.device)
        rank = rank - choices[tuples[:, position] + position]
    return rank
