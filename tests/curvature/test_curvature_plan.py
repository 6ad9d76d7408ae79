import dataclasses
import math

import pytest
import torch

from skiplens.base.errors import TooLargeError
from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.curvature.sampled import SpectrumOptions, choose_method, exact_bytes, notes_on, plan, sampled_fields
from skiplens.linalg.operator import DenseOperator, FunctionOperator
from tests.linalg.matrices import with_spectrum

VECTOR = 1000 * 8


def operator(size=1000):
    return FunctionOperator(lambda vector: vector, torch.zeros(size))


def with_room(vectors, **options):
    """Half of the memory is left to the products."""
    return SpectrumOptions(memory=2 * vectors * VECTOR, **options)


def test_everything_at_once_where_there_is_room():
    made = plan(operator(), with_room(8 * 46 + 10))
    assert made.at_once == 8 and made.reorthogonalise and made.extreme_basis == 40 and made.moment_products == 24
    assert not list(notes_on(made, SpectrumOptions()))


def test_fewer_probes_at_once_where_there_is_less():
    asked = with_room(100)
    made = plan(operator(), asked)
    assert made.at_once == 2 and made.reorthogonalise
    assert list(notes_on(made, asked)) == ["The probes were multiplied 2 at a time to fit in memory."]


def test_no_basis_where_there_is_hardly_any():
    asked = with_room(20)
    made = plan(operator(), asked)
    assert made.at_once == 3 and not made.reorthogonalise and made.extreme_basis is None
    first, second = notes_on(made, asked)
    assert "was not kept" in first and "no memory to search for the extremes" in second


def test_a_hundred_million_parameters_fit_in_eight_gigabytes():
    million = FunctionOperator(lambda vector: vector, torch.empty(1, dtype=torch.float32).expand(100_000_000))
    made = plan(million, SpectrumOptions(probes=2, steps=12, extremes=0, memory=8 * 2**30))
    assert made.at_once >= 1
    held = made.at_once * (12 if made.reorthogonalise else 0) + 6 * made.at_once
    assert held * 400_000_000 <= 4 * 2**30


def test_not_even_a_few_vectors():
    with pytest.raises(TooLargeError, match=r"Lanczos with 1,000 parameters \(6 vectors of 7\.8 KiB\) needs 46\.9 KiB"):
        plan(operator(), with_room(5))


def test_trace_and_norm_take_as_many_products_as_asked():
    assert plan(operator(), with_room(500, moment_products=9)).moment_products == 9
    assert plan(operator(), with_room(500, moment_products=0)).moment_products == 0
    assert (
        plan(operator(), with_room(500, probes=2)).moment_products == 12
    )  # four of each, so that scatter means something
    assert plan(operator(), with_room(20, moment_products=90)).moment_products == 9


def test_auto_changes_with_size_and_memory():
    assert choose_method(operator(3000), SpectrumOptions(memory=2**40)) == "exact"
    assert choose_method(operator(3001), SpectrumOptions(memory=2**40)) == "lanczos"
    assert choose_method(operator(3000), SpectrumOptions(memory=exact_bytes(operator(3000)) - 1)) == "lanczos"
    assert choose_method(operator(10), SpectrumOptions(method="lanczos")) == "lanczos"


def test_little_memory_gives_nearly_the_same_answer(generator):
    matrix = DenseOperator(with_spectrum(torch.cat([torch.linspace(-1, 1, 290), torch.arange(2.0, 12.0)]), generator))
    asked = SpectrumOptions(probes=4, steps=25, extremes=1)
    rich = sampled_fields(matrix, asked, Randomness(0), silent)
    poor_options = dataclasses.replace(asked, memory=2 * 18 * 300 * 8)
    poor = sampled_fields(matrix, poor_options, Randomness(0), silent)
    assert len(poor["notes"]) == 2 and rich["notes"] == ()
    assert poor["largest"] == pytest.approx(11, rel=1e-4) and rich["largest"] == pytest.approx(11, rel=1e-8)
    shares = [float(found["weights"][found["nodes"] < 0].sum()) for found in (poor, rich)]
    deviation = math.sqrt(2 * 0.25 / 300 * (1 / 4 + 1 / 1))  # of a share of half of 300, by four vectors and by one
    assert shares[0] == pytest.approx(shares[1], abs=4 * deviation)


def test_moments_of_the_density_where_there_is_no_room_for_others(generator):
    matrix = with_spectrum(torch.linspace(-1, 3, 200), generator)
    asked = SpectrumOptions(probes=6, steps=10, extremes=0, memory=2 * 11 * 200 * 8)
    found = sampled_fields(DenseOperator(matrix), asked, Randomness(0), silent)
    assert found["products"] == 60
    # Six probes: 4 standard errors of Student's distribution are passed once in 100.
    assert abs(found["trace"] - 200) <= 5 * found["trace_error"]
    assert abs(found["frobenius_norm"] - matrix.norm()) <= 5 * found["frobenius_error"]


def test_the_extremes_found_do_not_scatter_the_trace(generator):
    outliers = torch.linspace(30, 40, 6)
    spread = torch.cat([torch.linspace(-0.1, 0.1, 188), outliers, -outliers])
    matrix = DenseOperator(with_spectrum(spread, generator))
    errors = [
        sampled_fields(matrix, SpectrumOptions(probes=2, steps=8, extremes=extremes), Randomness(0), silent)
        for extremes in (6, 0)
    ]
    assert errors[0]["trace_error"] < errors[1]["trace_error"] / 3


def test_ends_that_were_not_reached_are_told():
    """Four products of a matrix with 400 eigenvalues come nowhere near its ends, forty do."""
    steep = DenseOperator(torch.diag(torch.linspace(-1, 1, 400, dtype=torch.float64) ** 9))
    few, many = (
        sampled_fields(steep, SpectrumOptions(extremes=0, probes=2, steps=steps), Randomness(0), silent)
        for steps in (3, 60)
    )
    assert few["largest"] < 0.9 and any("do not reach the ends" in note for note in few["notes"])
    assert many["largest"] > 0.98 and not any("ends" in note for note in many["notes"])
