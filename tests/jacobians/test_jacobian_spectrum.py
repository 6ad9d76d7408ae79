import pytest
import torch
from torch import nn

from skiplens import zoo
from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.base.progress import silent
from skiplens.graph.dissect import dissect
from skiplens.graph.functional import transformable
from skiplens.graph.network import ResidualNetwork, part_function
from skiplens.jacobians.part_spectrum import (
    Linearised,
    Part,
    SpectrumEffort,
    coupled_singular_values,
    coupling_norms,
    frozen_call,
    part_spectrum,
    whole_jacobian,
)
from skiplens.zoo.layers import Residual
from tests.networks import drawn, noise
from tests.tolerances import assert_close


def part_of(network: ResidualNetwork, block: int = 0, part: str = "block") -> Part:
    """A block as a function of its batch, with and without batch statistics that move."""
    chosen, samples = network.blocks[block], network.blocks[block].input_shape[0]
    norms = coupling_norms(network, chosen.input, chosen.join, samples)
    return Part(
        chosen.name,
        part_function(network, chosen, part),
        part_function(network, chosen, part, frozen_call(norms)),
        network.run([chosen.input])[chosen.input].detach(),
        samples,
        sum(mean.numel() for mean, _ in norms.values()),
    )


def normalised_block(samples: int = 6) -> Part:
    """A residual block with a strided projection and batch norms of three channels: 6 · 3 · 9 of 6 · 2 · 36 numbers."""
    branch = nn.Sequential(
        nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 3, padding=1)
    )
    model = drawn(Residual(branch, nn.Conv2d(2, 3, 1, stride=2)))
    return part_of(dissect(model, noise(samples, 2, 6, 6)))


@pytest.fixture
def block():
    return normalised_block()


def dense_values(function, point):
    J = torch.func.jacrev(function, chunk_size=64)(point).detach()
    return torch.linalg.svdvals(J.reshape(-1, point.numel()))


def test_low_rank_way_gives_all_singular_values_of_the_batch(block, generator):
    """162 × 432 with 3 channels: a difference of rank 6 at most; the oracle is autograd and a dense SVD."""
    coupled, frozen = Linearised(block.function, block.point), Linearised(block.frozen, block.point)
    assert block.channels == 3
    found = coupled_singular_values(coupled, frozen, 6, 6, generator, silent)
    expected = dense_values(block.function, block.point)
    assert_close(found, expected)
    frozen_values = dense_values(block.frozen, block.point)
    assert float((frozen_values - expected).abs().max() / expected[0]) > 1e-3  # the coupling does matter


def test_frozen_statistics_interlace(block):
    """Each channel can shift the sorted values by two places, as 6(b) of the theory note says."""
    coupled = dense_values(block.function, block.point)
    frozen = dense_values(block.frozen, block.point)
    shift = 2 * block.channels
    rounding = 1e-12 * coupled[0]
    assert bool((frozen[shift:] <= coupled[:-shift] + rounding).all())
    assert bool((coupled[shift:] <= frozen[:-shift] + rounding).all())


def test_transposed_problem_has_the_same_values(generator):
    """A tall Jacobian takes the Gram matrix on the other side."""

    def normalised(x):
        return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()

    widening = torch.randn(2, 5, generator=generator)
    point = torch.randn(4, 2, generator=generator)
    mean, scale = point.mean(0), (point.var(0, unbiased=False) + 1e-5).rsqrt()
    coupled = Linearised(lambda x: normalised(x) @ widening, point)
    frozen = Linearised(lambda x: (x - mean) * scale @ widening, point)
    found = coupled_singular_values(coupled, frozen, 4, 4, generator, silent)
    # The mean is lost, so two of the eight values are zero: 1e-8 of the largest in a Gram matrix.
    assert_close(found, dense_values(lambda x: normalised(x) @ widening, point), relative=3e-8)


def test_batch_norm_has_its_closed_form_singular_values(generator):
    """Note 2.8: √N s^-½ (N − 2 times), √N s^-3/2 N ε and 0 for each row, s = N ε + |centred row|²."""
    N, width, epsilon = 5, 3, 0.1
    layer, inputs = nn.BatchNorm1d(width, eps=epsilon, affine=False, track_running_stats=False), noise(N, width)
    network = dissect(nn.Sequential(layer), inputs)
    (source,) = network.exported.inputs
    norms = coupling_norms(network, source, network.output, N)
    frozen = lambda x: network.run([network.output], {source: x}, call=frozen_call(norms))[network.output]  # noqa: E731
    part = Part("norm", layer, frozen, inputs, N, width)
    found = part_spectrum(part, SpectrumEffort(coupling="batch", method="exact"), generator)
    s = N * epsilon + (inputs - inputs.mean(0)).square().sum(0)
    big, along = N**0.5 * s**-0.5, N**0.5 * s**-1.5 * N * epsilon
    expected = torch.cat([big.repeat(N - 2), along, torch.zeros(width)]).sort(descending=True).values
    assert_close(found.values, expected)
    sampled = part_spectrum(part, SpectrumEffort(coupling="sample", method="exact"), generator)
    assert_close(sampled.values, big.repeat(N).sort(descending=True).values)


@pytest.mark.parametrize(("coupling", "coupled"), [("auto", True), ("batch", True), ("sample", False)])
def test_coupling_decides_what_is_measured(coupling, coupled, block, generator):
    with transformable():
        found = part_spectrum(block, SpectrumEffort(coupling=coupling, method="exact"), generator)
    function = block.function if coupled else block.frozen
    assert found.coupled == coupled and found.count == 162
    assert_close(found.values, dense_values(function, block.point))


def test_lanczos_density_against_all_values(block, generator):
    """A distance of 0.05 is far above that of 60 steps (the note measured 0.02), far below that of a wrong spectrum."""
    with transformable():
        found = part_spectrum(block, SpectrumEffort(coupling="batch", method="lanczos", steps=60, probes=6), generator)
    expected = dense_values(block.function, block.point)
    assert_close(found.values[0], expected[0], relative=1e-10)
    for threshold in (0.3, 0.6, 1.0, 1.5):
        share = float(found.weights[found.values > threshold].sum())
        assert abs(share - float((expected > threshold).double().mean())) < 0.05


def test_auto_takes_lanczos_where_the_work_or_the_memory_does_not_do(block, generator):
    for effort in (SpectrumEffort(work=1e3), SpectrumEffort(memory=10**6)):
        with transformable():
            found = part_spectrum(block, effort, generator)
        assert found.method == "lanczos"
    each = 4 * (162 + 432) * 8  # four vectors on either side, float64
    assert len(found.values) == 4 * (10**6 // each)  # as many steps as there is room for


def test_a_density_that_does_not_fit_is_refused(block, generator):
    with transformable(), pytest.raises(TooLargeError, match=r"density of singular values of a 162 × 432 .*probes=1"):
        part_spectrum(block, SpectrumEffort(memory=1000), generator)


def test_exact_refuses_what_does_not_fit(block, generator):
    with transformable(), pytest.raises(TooLargeError, match=r"All singular values of 'branch' .*lanczos"):
        part_spectrum(block, SpectrumEffort(coupling="batch", method="exact", memory=1000), generator)


def test_coupling_without_batch_norm_has_no_single_samples(generator):
    part = Part("mixer", lambda x: x + x.mean(0), None, noise(4, 2), 4, 0)
    with pytest.raises(InvalidInputError, match="not only through the statistics of batch norm"):
        part_spectrum(part, SpectrumEffort(coupling="sample"), generator)
    found = part_spectrum(part, SpectrumEffort(coupling="batch"), generator)
    # x + mean(x) over the batch: eigenvalue 2 along the mean, 1 elsewhere, for each of two features.
    assert_close(found.values, torch.tensor([2.0] * 2 + [1.0] * 6))


def test_coupling_beside_batch_norm_falls_back_to_the_dense_way(generator):
    """The frozen form claims rank 2 while the mixing has full rank over samples."""
    mixing = torch.randn(60, 60, generator=generator)
    part = Part("both", lambda x: mixing @ x, lambda x: x, noise(60, 4), 60, 0)
    found = part_spectrum(part, SpectrumEffort(coupling="batch", method="exact"), generator)
    assert found.method == "exact"
    assert_close(found.values, torch.linalg.svdvals(mixing).repeat_interleave(4))


def test_a_part_that_changes_the_number_of_samples(generator):
    part = Part("folding", lambda x: x.reshape(2, 4), None, noise(4, 2), 4, 0)
    with pytest.raises(InvalidInputError, match=r"maps shape \(4, 2\) to shape \(2, 4\) for 4 samples"):
        part_spectrum(part, SpectrumEffort(coupling="sample"), generator)
    assert_close(part_spectrum(part, SpectrumEffort(coupling="batch"), generator).values, torch.ones(8))


def test_float32_agrees_with_float64(generator):
    double = normalised_block()
    values = dense_values(double.function, double.point)
    network = dissect(drawn(Residual(nn.Linear(2, 2))).float(), noise(2, 2, dtype=torch.float32))
    assert part_of(network).point.dtype == torch.float32
    single = Part("single", lambda x: double.function(x.double()).float(), None, double.point.float(), 6, 0)
    J = whole_jacobian(Linearised(single.function, single.point))
    assert J.dtype == torch.float32
    found = part_spectrum(single, SpectrumEffort(coupling="batch", method="exact"), generator)
    # 5e-5 absolute: what section 8 of the theory note measured for float32 Jacobians of these networks.
    assert float((found.values.double() - values).abs().max()) < 5e-5 * float(values[0])


@pytest.mark.slow
@pytest.mark.parametrize("network", ["mnist_chain", "mnist_residual", "mnist_residual_isopool"])
def test_blocks_of_the_mnist_networks(network, generator):
    """1,440 × 1,440 and 640 × 1,440, all by the low-rank way; chains lose half of their directions."""
    built = dissect(zoo.build(network), noise(2, 1, 28, 28).sigmoid())
    for index in range(len(built.blocks)):
        part = part_of(built, index, "branch")
        coupled, frozen = Linearised(part.function, part.point), Linearised(part.frozen, part.point)
        found = coupled_singular_values(coupled, frozen, 2, 2 * part.channels, generator, silent)
        assert_close(found, dense_values(part.function, part.point), relative=3e-8)  # zeros of a Gram matrix
