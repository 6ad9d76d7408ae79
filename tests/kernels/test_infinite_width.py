"""What every infinite-width kernel promises."""

from dataclasses import replace

import mpmath as mp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.kernels import evaluate
from skiplens.kernels.arc_cosine import Correlation
from skiplens.kernels.architectures import DenseNetKernel, ResNetKernel, VanillaKernel
from tests.kernels import reference
from tests.kernels.kernel_cases import KERNELS, QUANTITIES, name
from tests.tolerances import RELATIVE

every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=name)
every_quantity = pytest.mark.parametrize("quantity", QUANTITIES)


def matrix(kernel, quantity, X, Y=None):
    return getattr(kernel, quantity)(X, Y)


def hard_inputs(generator, samples=24, features=6):
    """Equal, nearly equal, opposite, nearly opposite, zero, huge and tiny inputs among random ones."""
    X = torch.randn(samples, features, generator=generator)
    X[1] = 3 * X[0]
    X[2] = X[0] + 1e-6 * X[5]
    X[3] = X[0] + 1e-3 * X[6]
    X[4] = -X[0]
    X[7] = -2 * X[0] + 1e-4 * X[8]
    X[9] = 0
    X[10] *= 1e12
    X[11] *= 1e-12
    return X


def relative_deviation(actual, expected, X, Y, kernel, quantity):
    """Deviation over τ·k(1), the size that every accuracy of the library is relative to."""
    rows = kernel.diagonal(X.double(), quantity).sqrt()
    columns = kernel.diagonal(Y.double(), quantity).sqrt()
    size = torch.outer(rows, columns)
    return ((actual.double() - expected).abs() / torch.where(size > 0, size, 1.0)).max()


@every_kernel
@every_quantity
def test_table_and_recursion_agree_in_double_precision_on_hard_inputs(kernel, quantity, generator):
    X = hard_inputs(generator)
    expected = matrix(replace(kernel, evaluation="recursion"), quantity, X)
    # opposite to 1e-4, the supplement has the rounding of π: 4e-16 of an angle times a slope of up to 100
    assert relative_deviation(matrix(kernel, quantity, X), expected, X, X, kernel, quantity) < 1e-12


@every_kernel
@every_quantity
@pytest.mark.parametrize("other", [False, True])
def test_single_precision_on_hard_inputs(kernel, quantity, other, generator):
    X = hard_inputs(generator).float()
    Y = X.flip(0)[:15] if other else None
    expected = matrix(replace(kernel, evaluation="recursion"), quantity, X.double(), None if Y is None else Y.double())
    actual = matrix(kernel, quantity, X, Y)
    assert actual.dtype == torch.float32
    assert relative_deviation(actual, expected, X, X if Y is None else Y, kernel, quantity) < RELATIVE[torch.float32]


def test_single_precision_of_a_deep_kernel_with_a_steep_slope(generator):
    kernel = ResNetKernel(1000, 2, 1.0, normalise=True)
    X = hard_inputs(generator, samples=60).float()
    expected = kernel.ntk(X.double())
    assert relative_deviation(kernel.ntk(X), expected, X, X, kernel, "ntk") < RELATIVE[torch.float32]


def test_many_nearly_equal_inputs_in_both_precisions(generator):
    center = torch.randn(1, 20, generator=generator)
    X = center + 1e-4 * torch.randn(40, 20, generator=generator)
    kernel = ResNetKernel(20, 2, 0.7)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        rounded = X.to(dtype)
        expected = angle_oracle(kernel, rounded)
        assert relative_deviation(kernel.ntk(rounded), expected, rounded, rounded, kernel, "ntk") < tolerance


@pytest.mark.parametrize("kernel", [ResNetKernel(1, 2, 0.5), DenseNetKernel(1), VanillaKernel(1)], ids=name)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_nearly_opposite_inputs_of_kernels_with_a_kink_there(kernel, dtype, tolerance, generator):
    X = torch.randn(40, 100, generator=generator)
    sizes = torch.tensor([0.0, 1e-6, 1e-4, 3e-4, 1e-3] * 4).unsqueeze(1)
    X[20:] = -X[:20] + sizes * torch.randn(20, 100, generator=generator)
    X = X.to(dtype)
    expected = angle_oracle(kernel, X)
    assert relative_deviation(kernel.ntk(X), expected, X, X, kernel, "ntk") < tolerance


def angle_oracle(kernel, X):
    """The kernel from cosines in 50 digits and the recursion on them."""
    with mp.workdps(50):
        rows = [[mp.mpf(float(value)) for value in row] for row in X]
        norms = [mp.sqrt(mp.fdot(row, row)) for row in rows]
        cosines = [[mp.fdot(a, b) / (m * n) for b, n in zip(rows, norms)] for a, m in zip(rows, norms)]  # noqa: B905
        below_one, above_minus_one = (
            torch.tensor([[float(max(1 + sign * rho, 0)) for rho in line] for line in cosines]) for sign in (-1, 1)
        )
        length = torch.tensor([float(n) for n in norms]) / X.shape[1] ** 0.5
    limit = kernel.limit()
    values = limit.recursion(Correlation(below_one, above_minus_one)).ntk * limit.log_scale.exp()
    return values * torch.outer(length, length)


def test_values_against_mpmath_from_the_inputs_on(generator):
    X = torch.randn(4, 3, generator=generator)
    found = ResNetKernel(6, 2, 0.6).ntk(X)
    with mp.workdps(40):
        rows = [[mp.mpf(float(value)) for value in row] for row in X]
        for i, a in enumerate(rows):
            for j, b in enumerate(rows):
                norms = mp.sqrt(mp.fdot(a, a) * mp.fdot(b, b))
                rho = min(mp.fdot(a, b) / norms, mp.mpf(1))
                expected = norms / 3 * reference.resnet(rho, [mp.mpf(0.6) ** 2] * 6, 2)[1]
                assert float(found[i, j]) == pytest.approx(float(expected), rel=1e-12, abs=1e-13)


@every_kernel
@every_quantity
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_symmetric_bit_for_bit_and_diagonal_in_closed_form(kernel, quantity, dtype, generator):
    X = hard_inputs(generator).to(dtype)
    K = matrix(kernel, quantity, X)
    assert torch.equal(K, K.T)
    assert torch.equal(K.diagonal(), kernel.diagonal(X, quantity))


@every_kernel
@every_quantity
def test_positive_semidefinite(kernel, quantity, generator):
    K = matrix(kernel, quantity, torch.randn(40, 5, generator=generator))
    eigenvalues = torch.linalg.eigvalsh(K)
    assert eigenvalues[0] > -40 * 2**-52 * eigenvalues[-1]


@pytest.mark.parametrize(
    ("kernel", "rank"),
    [(ResNetKernel(1, 2, 0.5), 10), (DenseNetKernel(1), 10), (ResNetKernel(2, 2, 0.5), 16), (DenseNetKernel(2), 16)],
    ids=name,
)
def test_rank_on_sixteen_points_of_a_circle(kernel, rank):
    """§2.4 of the theory note: antipodal pairs need m ≥ 3 or two layers."""
    angles = torch.arange(16) * (2 * torch.pi / 16)
    K = kernel.ntk(torch.stack([angles.cos(), angles.sin()], dim=1))
    assert int(torch.linalg.matrix_rank(K, rtol=1e-10)) == rank


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [(ResNetKernel(2, 2, 0.5), 2.7e-2), (ResNetKernel(1, 3, 0.5), 5.8e-2), (DenseNetKernel(2), 2.4e-2)],
    ids=name,
)
def test_smallest_eigenvalue_on_sixteen_points_of_a_circle(kernel, expected):
    angles = torch.arange(16) * (2 * torch.pi / 16)
    K = kernel.ntk(torch.stack([angles.cos(), angles.sin()], dim=1))
    ratio = float(torch.linalg.eigvalsh(K)[0] / K[0, 0])
    assert ratio == pytest.approx(expected, abs=6e-4)  # the note prints two digits


seeds = st.integers(0, 2**31)
kernels = st.sampled_from(KERNELS)


@given(
    seed=seeds,
    kernel=kernels,
    quantity=st.sampled_from(QUANTITIES),
    exponents=st.tuples(st.floats(-20, 20), st.floats(-20, 20)),
)
@settings(max_examples=25)
def test_homogeneous_in_each_argument(seed, kernel, quantity, exponents):
    generator = torch.Generator().manual_seed(seed)
    X, Y = (torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    c, d = (10.0**exponent for exponent in exponents)
    expected = c * d * matrix(kernel, quantity, X, Y)
    size = c * d * torch.outer(kernel.diagonal(X, quantity).sqrt(), kernel.diagonal(Y, quantity).sqrt())
    assert ((matrix(kernel, quantity, c * X, d * Y) - expected).abs() / size).max() < 1e-12


@given(seed=seeds, kernel=kernels, quantity=st.sampled_from(QUANTITIES))
@settings(max_examples=25)
def test_rotations_change_nothing(seed, kernel, quantity):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    Q, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))
    torch.testing.assert_close(matrix(kernel, quantity, X @ Q), matrix(kernel, quantity, X), rtol=1e-10, atol=1e-11)


@given(seed=seeds, kernel=kernels, quantity=st.sampled_from(QUANTITIES), cut=st.integers(1, 8))
@settings(max_examples=25)
def test_batches_permutations_and_the_transpose_change_nothing(seed, kernel, quantity, cut):
    generator = torch.Generator().manual_seed(seed)
    X, Y = (torch.randn(9, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    whole = matrix(kernel, quantity, X, Y)
    parts = torch.cat([matrix(kernel, quantity, rows, Y) for rows in X.split(cut)])
    torch.testing.assert_close(parts, whole, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(matrix(kernel, quantity, Y, X).T, whole, rtol=1e-11, atol=1e-12)
    order = torch.randperm(9, generator=generator)
    torch.testing.assert_close(matrix(kernel, quantity, X[order], Y), whole[order], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiles_change_nothing(dtype, generator, monkeypatch):
    X = hard_inputs(generator, samples=70).to(dtype)
    kernel = ResNetKernel(10, 2, 0.3)
    whole = kernel.ntk(X)
    monkeypatch.setitem(evaluate._TILE_ENTRIES, "cpu", 1)
    tiled = kernel.ntk(X)
    assert torch.equal(tiled, tiled.T)
    assert relative_deviation(tiled, whole.double(), X, X, kernel, "ntk") < (1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_inputs_have_a_zero_kernel(dtype):
    X = torch.zeros(2, 3, dtype=dtype)
    X[1] = 1
    assert DenseNetKernel(3).ntk(X)[0].tolist() == [0, 0]
    assert float(DenseNetKernel(3).diagonal(X)[0]) == 0


@pytest.mark.parametrize(("dtype", "huge"), [(torch.float32, 1e37), (torch.float64, 1e300)])
def test_norms_beyond_the_root_of_the_largest_number(dtype, huge):
    X = torch.tensor([[huge, huge], [0.0, 1 / huge]], dtype=dtype)
    K = DenseNetKernel(3).ntk(X[:1], X[1:])
    small = DenseNetKernel(3).ntk(torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=dtype))
    assert float(K[0, 0]) == pytest.approx(float(small[0, 1]), rel=RELATIVE[dtype])


@pytest.mark.parametrize("quantity", ["ntk", "nngp"])
def test_a_kernel_beyond_its_dtype_is_refused_not_infinite(generator, quantity):
    X = torch.randn(5, 4, generator=generator).float() * 1e30
    words = r"reaches 1?\d\.\de\+\d\d, beyond float32: their largest norm is \d\.\de\+\d\d·√d\. Divide .* float64"
    for take in (getattr(DenseNetKernel(3), quantity), lambda X: DenseNetKernel(3).diagonal(X, quantity)):
        with pytest.raises(InvalidInputError, match=words):
            take(X)
        assert bool(take(X.double()).isfinite().all())


def test_a_kernel_does_not_lose_bits_under_autocast(generator):
    X = torch.randn(5, 4, generator=generator).float()
    expected = ResNetKernel(5, 2, 0.5).ntk(X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ResNetKernel(5, 2, 0.5).ntk(X), expected)


def test_no_samples_give_an_empty_matrix():
    assert DenseNetKernel(2).ntk(torch.empty(0, 3), torch.ones(4, 3)).shape == (0, 4)
    assert DenseNetKernel(2).ntk(torch.empty(0, 3)).shape == (0, 0)


@pytest.mark.slow
def test_ten_thousand_blocks_in_single_precision(generator):
    kernel = ResNetKernel(10_000, 2, 0.01)
    X = torch.randn(10, 5, generator=generator)
    K, expected = kernel.ntk(X.float()), replace(kernel, evaluation="recursion").ntk(X.float().double())
    assert relative_deviation(K, expected, X, X, kernel, "ntk") < 1e-5


def test_normalised_kernel_is_the_kernel_over_its_value_at_equal_inputs(generator):
    X = torch.randn(5, 4, generator=generator)
    plain = ResNetKernel(4, 2, 0.8)
    relative = replace(plain, normalise=True)
    torch.testing.assert_close(relative.ntk(X), plain.ntk(X) / (2 * 4 * 0.64 * 1.64**3), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(relative.diagonal(X), X.square().sum(1) / 4)


def test_one_value_per_block_that_is_the_same_everywhere(generator):
    X = torch.randn(5, 4, generator=generator)
    torch.testing.assert_close(ResNetKernel(3, 2, [0.4] * 3).ntk(X), ResNetKernel(3, 2, 0.4).ntk(X))
    torch.testing.assert_close(ResNetKernel(3, 2, torch.full((3,), 0.4)).ntk(X), ResNetKernel(3, 2, 0.4).ntk(X))


def test_frozen_and_equal_by_value():
    assert ResNetKernel(3, 2, [0.1, 0.2, 0.3]) == ResNetKernel(3, 2, torch.tensor([0.1, 0.2, 0.3]))
    assert hash(VanillaKernel(3)) == hash(VanillaKernel(3))
    with pytest.raises(AttributeError):
        VanillaKernel(3).depth = 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ResNetKernel(0, 2, 0.5), "depth must be at least 1, got 0"),
        (lambda: DenseNetKernel(-3), "depth must be at least 1, got -3"),
        (lambda: VanillaKernel(0), "depth must be at least 1, got 0"),
        (lambda: ResNetKernel(3, 0, 0.5), "branch_depth must be at least 1, got 0"),
        (lambda: ResNetKernel(3, 2, -0.5), r"branch_scale must be finite and not negative, got -0\.5"),
        (lambda: ResNetKernel(3, 2, float("nan")), "branch_scale must be finite and not negative, got nan"),
        (lambda: ResNetKernel(3, 2, [0.5, 0.5]), r"one for each of the 3 blocks, got \(2,\) values"),
        (lambda: DenseNetKernel(3, accuracy=0.0), r"accuracy must be positive, got 0\.0"),
    ],
)
def test_wrong_options_are_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_unknown_words_are_refused():
    for option in ("trained", "evaluation"):
        kernel = object.__new__(DenseNetKernel)
        for field, value in {
            "depth": 1,
            "trained": "all",
            "evaluation": "table",
            "accuracy": 1e-12,
            option: "some",
        }.items():
            object.__setattr__(kernel, field, value)
        with pytest.raises(InvalidInputError, match=f"{option} must be one of .*, got 'some'"):
            kernel._require_common_options()


def test_a_kernel_beyond_the_dtype_is_refused_and_its_normalised_form_is_not(generator):
    X = torch.randn(3, 4, generator=generator)
    with pytest.raises(InvalidInputError, match=r"10\^30\d\d at inputs of norm √d, beyond float64.*normalise=True"):
        ResNetKernel(10_000, 2, 1.0).diagonal(X)
    with pytest.raises(InvalidInputError, match=r"10\^6\d at inputs of norm √d, beyond float32"):
        ResNetKernel(200, 2, 1.0).ntk(X.float(), X.float())
    assert torch.isfinite(ResNetKernel(200, 2, 1.0, normalise=True).ntk(X.float())).all()


def test_a_zero_kernel_cannot_be_normalised(generator):
    X = torch.randn(3, 4, generator=generator)
    with pytest.raises(InvalidInputError, match=r"ntk is 0 everywhere .* cannot be normalised"):
        ResNetKernel(3, 2, 0.0, normalise=True).ntk(X)
    assert float(ResNetKernel(3, 2, 0.0).ntk(X).abs().max()) == 0


def test_a_matrix_that_cannot_fit_is_refused_with_the_size_that_would(monkeypatch):
    monkeypatch.setattr(evaluate, "free_bytes", lambda device: 8 * 100 * 100)
    with pytest.raises(
        TooLargeError, match=r"101 × 101 entries needs .* About 100 × 100 would fit; skiplens.kernels.gram"
    ):
        DenseNetKernel(2).ntk(torch.ones(101, 2))
    with pytest.raises(TooLargeError, match=r"entries with gradients needs"):
        DenseNetKernel(2).ntk(torch.ones(90, 2, requires_grad=True))


@pytest.mark.gpu
@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_values_on_the_gpu(kernel, dtype, generator):
    X = hard_inputs(generator, samples=100).to(dtype)
    Y = X[20:50]
    for quantity in QUANTITIES:
        for other in (None, Y):
            expected = matrix(kernel, quantity, X.double(), None if other is None else other.double())
            found = matrix(kernel, quantity, X.cuda(), None if other is None else other.cuda())
            assert found.is_cuda and found.dtype == dtype
            deviation = relative_deviation(found.cpu(), expected, X, X if other is None else other, kernel, quantity)
            assert deviation < (1e-5 if dtype == torch.float32 else 1e-12)
