import math

import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call

import skiplens as sl
from skiplens.base.errors import InvalidInputError, SettingsError, TooLargeError
from skiplens.curvature.operator import loss_operator
from skiplens.readings.file import read_file, write_file
from tests.lens_cases import Block
from tests.linalg.coverage import least_covered, spread_factor
from tests.networks import chain, drawn, noise
from tests.papers.li2016_shortcuts.hessian.test_linear import TABLE
from tests.tolerances import assert_close
from tests.zoo.test_li2016 import data, network_of


def half_square(outputs, targets):
    """The note's loss, 1/(2m) Σ ‖y − ŷ‖²."""
    return (outputs - targets).square().sum(1).mean() / 2


def dense_hessian(model, loss, inputs, targets, names=None):
    """The oracle: torch.autograd.functional.hessian of the loss as a function of one long vector."""
    parameters = {name: p.detach() for name, p in model.named_parameters() if names is None or name in names}

    def of_vector(vector):
        parts = vector.split([p.numel() for p in parameters.values()])
        replaced = {name: part.reshape(parameters[name].shape) for name, part in zip(parameters, parts, strict=True)}
        return loss(functional_call(model, replaced, (inputs,)), targets)

    return hessian(of_vector, torch.cat([p.flatten() for p in parameters.values()]))


def two_blocks(dtype=torch.float64):
    model = drawn(nn.Sequential(Block(), Block(), nn.Linear(4, 2))).eval().to(dtype)
    return model, (noise(6, 4, seed=1).to(dtype), torch.tensor([0, 1, 0, 1, 1, 0]))


def wide():
    """700 parameters: small enough for the oracle, large enough for sampling."""
    model = drawn(nn.Sequential(nn.Linear(10, 30), nn.Tanh(), nn.Linear(30, 12)))
    return model, (noise(40, 10, seed=2), noise(40, 12, seed=3))


@pytest.mark.parametrize("row", [row for row in TABLE if row.startswith("S3")])
def test_the_notes_table_of_hessians(row):
    """Closed forms with exact rational input, computed without any network."""
    width, branch_depth, loss, gradient, trace, norm, *_, largest, smallest, quantile, negative = TABLE[row]
    name = "shortcut_linear" if branch_depth else "plain_network"
    options = {"units": 6 // branch_depth, "branch_depth": branch_depth} if branch_depth else {"depth": 6}
    network = network_of(name, 0.4, width=width, **options)
    spectrum = sl.hessian_spectrum(network, data(3, 8), loss=half_square)
    assert spectrum.method == "exact" and spectrum.parameters == 54 and spectrum.samples == 8
    found = [spectrum.loss, spectrum.gradient_norm, spectrum.trace, spectrum.frobenius_norm]
    assert_close(torch.tensor(found), torch.tensor([loss, gradient, trace, norm]), relative=1e-11)
    extremes = torch.tensor(
        [spectrum.largest, spectrum.smallest, spectrum.largest_absolute / spectrum.condition_number]
    )
    assert (extremes - torch.tensor([largest, smallest, quantile])).abs().max() < 1e-11 * max(1, largest)
    assert spectrum.index * 54 == pytest.approx(negative)


def test_all_eigenvalues_and_what_follows_are_those_of_autograd():
    model, (inputs, targets) = two_blocks()
    H = dense_hessian(model, nn.functional.cross_entropy, inputs, targets)
    values = torch.linalg.eigvalsh(H)
    spectrum = sl.hessian_spectrum(model, (inputs, targets), loss="cross_entropy", method="exact")
    assert_close(spectrum.eigenvalues, values, relative=1e-11)
    assert (spectrum.eigenvalues.diff() >= 0).all()
    # Batch norm and softmax leave more than a tenth of the directions flat: zeros up to rounding.
    assert spectrum.condition_interval[0] > 1e10 and spectrum.condition_interval[1] == math.inf
    beyond = (values < -spectrum.rounding).double().mean().item()
    assert spectrum.index_beyond_rounding == beyond
    assert spectrum.index_interval[0] <= beyond <= spectrum.index <= spectrum.index_interval[1]
    assert spectrum.negative_mass == pytest.approx((values[values < 0].sum().abs() / values.abs().sum()).item())
    assert_close(torch.trapezoid(spectrum.density, spectrum.grid), torch.tensor(1.0), relative=1e-6)
    assert_close(spectrum.weights.sum(), torch.tensor(1.0))


def test_the_condition_number_takes_the_nearest_rank():
    model, (inputs, targets) = wide()
    values = torch.linalg.eigvalsh(dense_hessian(model, nn.functional.mse_loss, inputs, targets))
    spectrum = sl.hessian_spectrum(model, (inputs, targets), loss="mse")
    absolute = values.abs().sort().values
    expected = (absolute[-1] / absolute[math.ceil(0.1 * len(values)) - 1]).item()
    assert spectrum.condition_number == pytest.approx(expected, rel=1e-9)
    low, high = spectrum.condition_interval
    assert low <= spectrum.condition_number <= high <= low * (1 + 1e-9)
    assert spectrum.index == (values < 0).double().mean().item() == spectrum.index_interval[0]


def test_lanczos_finds_the_extremes_and_covers_everything_else():
    model, (inputs, targets) = wide()
    values = torch.linalg.eigvalsh(dense_hessian(model, nn.functional.mse_loss, inputs, targets))
    spectrum = sl.hessian_spectrum(model, (inputs, targets), loss="mse", method="lanczos", extremes=3, vectors=True)
    assert len(spectrum.eigenvalues) == 0 and spectrum.probes == 8 and spectrum.steps == 40
    expected = torch.cat([values[:3], values[-3:]])
    distance = (spectrum.extremes - expected).abs()
    assert (distance <= spectrum.extreme_residuals + 1e-12).all()
    assert (spectrum.extreme_residuals <= 1e-4 * values.abs().max()).all()
    H = dense_hessian(model, nn.functional.mse_loss, inputs, targets)
    residuals = (H @ spectrum.vectors - spectrum.vectors * spectrum.extremes).norm(dim=0)
    assert (residuals <= 1.1 * spectrum.extreme_residuals + 1e-12).all()
    absolute = values.abs().sort().values
    condition = (absolute[-1] / absolute[math.ceil(0.1 * len(values)) - 1]).item()
    assert spectrum.condition_interval[0] <= condition <= spectrum.condition_interval[1]
    assert spectrum.index_interval[0] <= (values < 0).double().mean() <= spectrum.index_interval[1]
    flat = (values.abs() <= 0.1 * absolute[-1]).double().mean()
    assert spectrum.flat_interval[0] <= flat <= spectrum.flat_interval[1]
    assert spectrum.largest == pytest.approx(values[-1].item(), rel=1e-4)
    assert_close(spectrum.weights.sum(), torch.tensor(1.0))
    assert_close(torch.trapezoid(spectrum.density, spectrum.grid), torch.tensor(1.0), relative=1e-6)


@pytest.mark.slow
def test_error_bars_cover_the_truth_in_95_of_100_repeats():
    """Trace, norm, index, condition number, flat share and negative mass of a network of 124 parameters."""
    model, batch = two_blocks()
    values = torch.linalg.eigvalsh(dense_hessian(model, nn.functional.cross_entropy, *batch))
    absolute = values.abs().sort().values
    condition = (absolute[-1] / absolute[math.ceil(0.1 * len(values)) - 1]).item()
    mass = (values[values < 0].sum().abs() / values.abs().sum()).item()
    flat = (absolute <= 0.1 * absolute[-1]).double().mean().item()
    asked = {"method": "lanczos", "probes": 6, "steps": 12, "extremes": 2}
    matrix = loss_operator(model, batch, loss="cross_entropy").dense()
    covered = torch.zeros(6)
    for repeat in range(200):
        found = repeated(matrix, repeat, asked)
        wide_enough = spread_factor(6)
        covered += torch.tensor(
            [
                abs(found["trace"] - values.sum().item()) <= wide_enough * found["trace_error"],
                abs(found["frobenius_norm"] - values.norm().item()) <= wide_enough * found["frobenius_error"],
                found["index_interval"][0] <= (values < 0).double().mean().item() <= found["index_interval"][1],
                found["condition_interval"][0] <= condition * (1 + 1e-9) <= found["condition_interval"][1],
                found["flat_interval"][0] <= flat <= found["flat_interval"][1],
                abs(negative_mass(found) - mass) <= wide_enough * found["negative_mass_error"],
            ]
        )
    assert covered.min() >= least_covered(200), covered


def repeated(matrix, seed, asked):
    """What the reading would hold, without building the operator again."""
    from skiplens.base.progress import silent
    from skiplens.base.randomness import Randomness
    from skiplens.curvature.sampled import SpectrumOptions, sampled_fields
    from skiplens.linalg.operator import DenseOperator

    sampling = SpectrumOptions(**asked), Randomness(seed), silent
    return sampled_fields(DenseOperator(matrix), *sampling)


def negative_mass(found):
    mass = found["nodes"].abs() * found["weights"]
    return (mass[found["nodes"] < 0].sum() / mass.sum()).item()


def test_gauss_newton_has_no_negative_eigenvalues():
    model, batch = two_blocks()
    spectrum = sl.hessian_spectrum(model, batch, loss="cross_entropy", kind="gauss_newton")
    assert spectrum.of == "gauss_newton" and spectrum.matrix_name == "Gauss-Newton matrix"
    assert spectrum.index_beyond_rounding == 0 and spectrum.smallest >= -spectrum.rounding


@pytest.mark.parametrize("method", ["exact", "lanczos"])
def test_blocks_are_principal_submatrices(method):
    model, (inputs, targets) = two_blocks()
    asked = {"blocks": True, "probes": 4, "steps": 60}
    spectrum = sl.hessian_spectrum(model, (inputs, targets), loss="cross_entropy", method=method, **asked)
    assert list(spectrum.blocks) == ["0", "1"]
    for name, block in spectrum.blocks.items():
        names = [parameter for parameter, _ in model.named_parameters() if parameter.startswith(f"{name}.")]
        values = torch.linalg.eigvalsh(dense_hessian(model, nn.functional.cross_entropy, inputs, targets, names))
        assert block.parameters == len(values) == 57 and list(block.parameter_shapes) == names
        tolerance = 1e-11 if method == "exact" else 1e-4
        assert abs(block.largest - values[-1]) <= tolerance * values.abs().max()
        assert abs(block.smallest - values[0]) <= tolerance * values.abs().max()
    (only,) = sl.hessian_spectrum(model, (inputs, targets), loss="cross_entropy", blocks=("1",)).blocks
    assert only == "1"


def test_the_whole_reading_survives_its_file(tmp_path):
    model, batch = two_blocks()
    spectrum = sl.hessian_spectrum(model, batch, loss="cross_entropy", blocks=True, vectors=True)
    write_file(tmp_path / "spectrum.npz", spectrum)
    again = read_file(tmp_path / "spectrum.npz")
    assert torch.equal(again.eigenvalues, spectrum.eigenvalues) and torch.equal(again.vectors, spectrum.vectors)
    assert again.blocks["1"].largest == spectrum.blocks["1"].largest
    assert again.parameter_shapes == spectrum.parameter_shapes


def test_eigenvectors_come_back_by_parameter():
    model, (inputs, targets) = two_blocks()
    spectrum = sl.hessian_spectrum(model, (inputs, targets), loss="cross_entropy", vectors=True, extremes=2)
    H = dense_hessian(model, nn.functional.cross_entropy, inputs, targets)
    assert spectrum.vectors.shape == (124, 4)
    assert_close(H @ spectrum.vectors, spectrum.vectors * spectrum.extremes, relative=1e-10)
    parts = spectrum.vector(-1)
    assert parts["2.weight"].shape == (2, 4)
    assert torch.equal(torch.cat([part.flatten() for part in parts.values()]), spectrum.vectors[:, -1])


def test_only_the_chosen_parameters():
    model, (inputs, targets) = two_blocks()
    spectrum = sl.hessian_spectrum(model, (inputs, targets), loss="cross_entropy", parameters=["2.weight", "2.bias"])
    H = dense_hessian(model, nn.functional.cross_entropy, inputs, targets, ("2.weight", "2.bias"))
    assert_close(spectrum.eigenvalues, torch.linalg.eigvalsh(H), relative=1e-11)


def test_batches_are_averaged_also_when_the_last_is_short():
    model, (inputs, targets) = two_blocks()
    whole = sl.hessian_spectrum(model, (inputs, targets), loss="cross_entropy")
    batches = [(inputs[:4], targets[:4]), (inputs[4:], targets[4:])]
    assert_close(
        sl.hessian_spectrum(model, batches, loss="cross_entropy").eigenvalues, whole.eigenvalues, relative=1e-11
    )


def test_single_precision_models_are_solved_in_double_precision():
    double = sl.hessian_spectrum(two_blocks()[0], two_blocks()[1], loss="cross_entropy")
    model, batch = two_blocks(torch.float32)
    single = sl.hessian_spectrum(model, batch, loss="cross_entropy")
    assert single.eigenvalues.dtype == torch.float64
    assert_close(single.eigenvalues, double.eigenvalues, relative=1e-5)
    # What the products' rounding may have moved is stated.
    assert (single.eigenvalues - double.eigenvalues).abs().max() <= 100 * single.extreme_residuals.max()
    sampled = sl.hessian_spectrum(model, batch, loss="cross_entropy", method="lanczos")
    assert abs(sampled.largest - double.largest) <= 1e-4 * double.largest_absolute


def test_same_seed_same_numbers_and_another_seed_others():
    model, batch = wide()
    first, again, other = (
        sl.hessian_spectrum(model, batch, loss="mse", method="lanczos", seed=seed, steps=10, extremes=0)
        for seed in (1, 1, 2)
    )
    assert torch.equal(first.nodes, again.nodes) and first.trace == again.trace
    assert not torch.equal(first.nodes, other.nodes)
    assert first.provenance.settings == {"method": "lanczos", "seed": 1, "steps": 10, "extremes": 0}
    assert first.provenance.seed == 1


def test_auto_is_exact_where_it_fits():
    model, batch = two_blocks()
    assert sl.hessian_spectrum(model, batch, loss="cross_entropy").method == "exact"
    assert sl.hessian_spectrum(model, batch, loss="cross_entropy", memory=200_000).method == "lanczos"


def test_too_large_for_exact_says_what_it_needs_and_what_to_do():
    model, batch = two_blocks()
    with pytest.raises(TooLargeError, match=r"'exact' of 124 parameters .* needs 1\.2 MiB, .* 48\.8 KiB .*'lanczos'"):
        sl.hessian_spectrum(model, batch, loss="cross_entropy", method="exact", memory=50_000)


def test_a_loss_that_does_not_curve_is_all_zeros():
    model = nn.Linear(2, 1)
    spectrum = sl.hessian_spectrum(model, (noise(3, 2), noise(3, 1)), loss=lambda outputs, targets: outputs.mean())
    assert spectrum.largest == spectrum.smallest == 0 and math.isnan(spectrum.condition_number)
    assert spectrum.index == 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"probes": 1}, "probes=1 and steps=40; ask for at least 2 of each"),
        ({"steps": 1}, "probes=8 and steps=1; ask for at least 2 of each"),
        ({"extremes": -1}, "extremes=-1 and max_products=500; ask for 0 or more"),
        ({"moment_products": 5}, "moment_products=5; ask for at least 6, or for 0"),
        ({"tolerance": 0.0}, r"tolerance=0\.0; the residual to stop at must be positive"),
        ({"vectors": True, "extremes": 0}, "vectors=True keeps the eigenvectors of the extremes; ask for extremes=1"),
        ({"blocks": ("stage1",)}, "The model has no residual block 'stage1'. Known names: 0, 1"),
    ],
)
def test_what_means_nothing_is_refused(asked, message):
    model, batch = two_blocks()
    with pytest.raises(InvalidInputError, match=message):
        sl.hessian_spectrum(model, batch, loss="cross_entropy", **asked)


def test_unknown_words_are_refused():
    model, batch = two_blocks()
    with pytest.raises(SettingsError, match="method must be one of auto, exact, lanczos; got 'power'"):
        sl.hessian_spectrum(model, batch, loss="cross_entropy", method="power")
    with pytest.raises(TypeError, match="unexpected keyword argument 'prob'"):
        sl.hessian_spectrum(model, batch, loss="cross_entropy", prob=3)


def test_a_search_that_ran_out_of_products_says_so():
    model, batch = wide()
    spectrum = sl.hessian_spectrum(
        model, batch, loss="mse", method="lanczos", steps=5, extremes=2, max_products=12, tolerance=1e-12
    )
    assert "used up its products before it converged" in spectrum.notes[-1]


def test_the_scipy_view_has_the_same_eigenvalues():
    from scipy.sparse.linalg import eigsh

    model, batch = two_blocks()
    view = loss_operator(model, batch, loss="cross_entropy").to_scipy()
    spectrum = sl.hessian_spectrum(model, batch, loss="cross_entropy")
    assert eigsh(view, k=1, which="LA", return_eigenvectors=False)[0] == pytest.approx(spectrum.largest, rel=1e-8)


def test_a_network_without_blocks_has_no_spectra_of_blocks():
    assert sl.hessian_spectrum(chain(), (noise(4, 3), noise(4, 3)), loss="mse", blocks=True).blocks == {}


@pytest.mark.slow
def test_five_thousand_parameters_against_a_dense_hessian():
    model = drawn(nn.Sequential(nn.Linear(30, 80), nn.Tanh(), nn.Linear(80, 30)))
    inputs, targets = noise(60, 30, seed=5), noise(60, 30, seed=6)
    H = dense_hessian(model, nn.functional.mse_loss, inputs, targets)
    values = torch.linalg.eigvalsh(H)
    assert len(values) == 4910
    exact = sl.hessian_spectrum(model, (inputs, targets), loss="mse", method="exact")
    assert_close(exact.eigenvalues, values, relative=1e-10)
    sampled = sl.hessian_spectrum(model, (inputs, targets), loss="mse", method="lanczos")
    assert sampled.largest == pytest.approx(values[-1].item(), rel=1e-6)
    assert sampled.index_interval[0] <= exact.index <= sampled.index_interval[1]
    assert sampled.condition_interval[0] <= exact.condition_number <= sampled.condition_interval[1]
    assert abs(sampled.trace - exact.trace) <= 4 * sampled.trace_error
    assert abs(sampled.frobenius_norm - exact.frobenius_norm) <= 4 * sampled.frobenius_error
