"""Networks of NAS-Bench-201, what is read off them, and how readings are joined."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from benchmarks.trainability import cell_readings, nasbench
from benchmarks.trainability.cells import Cell, CellNetwork, Reduction, parse_cell
from benchmarks.trainability.pool import append_rows, read_rows
from tests.tolerances import STANDARD_ERRORS, assert_close

# Published numbers of parameters (Dong and Yang 2020).
PUBLISHED = {
    "|skip_connect~0|+|nor_conv_3x3~0|nor_conv_1x1~1|+|skip_connect~0|avg_pool_3x3~1|nor_conv_1x1~2|": 372346,
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_1x1~1|+|skip_connect~0|nor_conv_1x1~1|avg_pool_3x3~2|": 615386,
    "|skip_connect~0|+|none~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_1x1~1|skip_connect~2|": 587386,
    "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|": 73306,
}
CELL = "|nor_conv_3x3~0|+|avg_pool_3x3~0|nor_conv_1x1~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"


@pytest.mark.parametrize(("cell", "parameters"), PUBLISHED.items())
def test_networks_have_the_published_number_of_parameters(cell, parameters):
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in CellNetwork(cell).parameters()) == parameters


@pytest.mark.parametrize("text", ["", "|none~0|", CELL.replace("~2", "~1"), CELL.replace("none", "max_pool")])
def test_what_is_no_cell_is_refused(text):
    with pytest.raises(ValueError, match="is not a cell of NAS-Bench-201"):
        parse_cell(text)


def _convolved(part, x):
    convolution, norm = part[1], part[2]
    y = F.conv2d(F.relu(x), convolution.weight, stride=convolution.stride, padding=convolution.padding)
    mean, variance = y.mean((0, 2, 3), keepdim=True), y.var((0, 2, 3), keepdim=True, correction=0)
    return (y - mean) / (variance + norm.eps).sqrt()


def test_a_cell_is_the_sum_over_its_edges():
    cell, x = Cell(parse_cell(CELL), 3), torch.randn(2, 3, 5, 5)
    first, second, third = cell.edges
    one = _convolved(first[0], x)
    padded, inside = (F.avg_pool2d(F.pad(y, [1] * 4), 3, 1) for y in (x, torch.ones_like(x)))
    two = padded / inside + _convolved(second[1], one)  # what is outside the image does not count
    assert_close(cell(x), x + _convolved(third[1], two), 1e-10)


def test_between_stages_there_is_a_residual_block_of_stride_two():
    block, x = Reduction(3, 6), torch.randn(2, 3, 4, 4)
    means = x.unflatten(2, (2, 2)).unflatten(4, (2, 2)).mean((3, 5))
    shortcut = torch.einsum("oi,nihw->nohw", block.shortcut[1].weight[:, :, 0, 0], means)
    assert_close(block(x), shortcut + _convolved(block.branch[1], _convolved(block.branch[0], x)), 1e-10)


def test_a_cell_without_edges_into_its_last_node_gives_zeros():
    cell = Cell(parse_cell("|nor_conv_3x3~0|+|none~0|none~1|+|none~0|none~1|none~2|"), 3)
    assert not cell(torch.randn(2, 3, 5, 5)).any()


def test_entropy_of_channels():
    signs = torch.cat([torch.eye(4), -torch.eye(4)]).reshape(8, 4, 1, 1)
    assert cell_readings.channel_entropy(signs) == pytest.approx(math.log(4))
    same = torch.randn(8, 1, 3, 3).expand(8, 4, 3, 3)
    assert cell_readings.channel_entropy(same) == pytest.approx(0, abs=1e-9)  # three eigenvalues are 1e-16, not zero
    assert cell_readings.channel_entropy(torch.zeros(8, 4, 3, 3)) == 0


def test_gradients_between_parts_are_judged_by_their_largest_singular_value(generator):
    mixing, x = nn.Conv2d(4, 4, 1, bias=False), torch.randn(64, 4, 8, 8, requires_grad=True)
    nn.init.orthogonal_(mixing.weight, 1.7)
    found = cell_readings.step_conditioning(x, mixing(x), generator)
    # Each entry of the estimated 4×4 matrix is a mean over 4096 products of size below 1.7·2.
    error = STANDARD_ERRORS * 4 * 1.7 / math.sqrt(64 * 64)
    assert found == pytest.approx(2 - 1.7 - 1 / 1.7, abs=error)
    assert cell_readings.step_conditioning(x, x * 1, generator) == -math.inf
    assert cell_readings.step_conditioning(x, torch.zeros(64, 4, 8, 8), generator) == -math.inf


def test_features_are_alike_where_samples_do_not_differ():
    features = torch.randn(5, 7)
    correlations = np.corrcoef(features.numpy())
    wanted = -np.mean([correlations[n, m] for n in range(5) for m in range(5) if n != m])
    assert cell_readings.mean_correlation(features) == pytest.approx(wanted)
    assert cell_readings.mean_correlation(features[:1].expand(5, 7)) == pytest.approx(-1)


def test_kernel_readings_of_a_linear_model():
    model, inputs, targets = nn.Linear(4, 3, bias=False), torch.randn(4, 4), torch.tensor([0, 0, 1, 2])
    gram = 3 * (inputs @ inputs.T).numpy()
    values = np.linalg.eigvalsh(gram)
    same = np.equal.outer(targets.numpy(), targets.numpy()).astype(float)
    centred = [k - k.mean(0) - k.mean(1, keepdims=True) + k.mean() for k in (gram, same)]
    found = cell_readings.kernel_readings(model, inputs, targets)
    assert found["kernel size"] == pytest.approx(math.log(np.trace(gram)))
    assert found["kernel rank"] == pytest.approx(math.exp(scipy.stats.entropy(values)))
    assert found["kernel condition"] == pytest.approx(-math.log10(values[-1] / values[0]))
    assert found["kernel alignment"] == pytest.approx(
        (centred[0] * centred[1]).sum() / np.linalg.norm(centred[0]) / np.linalg.norm(centred[1])
    )


def test_multiplications_are_counted():
    model = nn.Sequential(nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(20, 2))
    assert cell_readings.multiply_adds(model, torch.randn(2, 3, 4, 4)) == 5 * 4 * 27 + 2 * 20
    assert not any(module._forward_hooks for module in model.modules())


def test_flips_on_a_line_are_those_between_its_ends_for_one_layer():
    model, ends = nn.Sequential(nn.Flatten(), nn.Linear(4, 50), nn.ReLU()), torch.randn(2, 1, 2, 2)
    before, after = model[1](ends.flatten(1)) > 0
    assert cell_readings.relu_flips(model, ends) == pytest.approx(math.log1p(int((before != after).sum())))


@pytest.fixture
def small():
    """A network with every kind of layer that Fisher information is taken of."""
    head = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))
    return nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), nn.Conv2d(6, 6, 1), *head)


def test_derivatives_by_first_entries_are_those_of_autograd(small, generator):
    model, inputs = cell_readings.redrawn(small, generator).eval(), torch.randn(5, 3, 6, 6)
    model[1].running_mean.normal_()
    first = torch.stack([p.detach().flatten()[0] for p in model.parameters()])

    def outputs(entries, sample):
        moved = {}
        for entry, (name, parameter) in zip(entries, model.named_parameters(), strict=True):
            flat = parameter.detach().flatten()
            moved[name] = torch.cat([entry[None], flat[1:]]).reshape(parameter.shape)
        return functional_call(model, moved, (sample[None],))[0]

    wanted = [torch.autograd.functional.jacobian(lambda e, x=sample: outputs(e, x), first) for sample in inputs]
    probabilities, jacobian = cell_readings.first_entry_jacobian(model, inputs)
    assert_close(jacobian, torch.stack(wanted), 1e-10)
    assert_close(probabilities, model(inputs).detach().softmax(1), 1e-12)
    mixed = 0.95 * probabilities + 0.05 / 4
    fisher = sum(
        jacobian[n].T @ (torch.diag(mixed[n]) - torch.outer(mixed[n], mixed[n])) @ jacobian[n] for n in range(5)
    )
    deciles = np.quantile(np.linalg.eigvalsh(fisher.numpy() / 5), np.arange(1, 10) / 10)
    assert cell_readings.fisher_entropy(model, inputs) == pytest.approx(scipy.stats.entropy(deciles), rel=1e-9)


def test_a_network_is_read_whole_and_comes_out_as_it_was():
    model = CellNetwork(CELL).float().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = cell_readings.read_cell(model, torch.randn(8, 3, 8, 8).float(), torch.arange(8))
    assert set(found) == set(nasbench.READINGS) and all(map(math.isfinite, found.values()))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training


def test_ranks_are_joined_by_their_logarithms():
    found = nasbench.joined_ranks([np.array([3.0, 1.0, 2.0]), np.array([math.nan, 5.0, -math.inf])])
    # What is not there has the lowest rank, beside what is infinitely bad.
    assert_close(torch.tensor(found), torch.tensor([3 * 1.5, 1 * 3, 2 * 1.5]).log(), 1e-12)


def test_readings_that_help_are_chosen_on_one_half_and_judged_on_the_other():
    draws = np.random.default_rng(0).normal(size=(4, 400))
    accuracy = draws[0] + draws[1]
    readings = {"first": draws[0], "noise": draws[2], "second": draws[1], "more noise": draws[3]}
    assert set(nasbench.chosen_readings(readings, accuracy)) == {"first", "second"}
    for names, here, there in nasbench.split_report(readings, accuracy):
        assert set(names.split(" + ")) == {"first", "second"}
        assert 0.8 < there < 1 and 0.8 < here < 1


def test_the_report_compares_with_what_is_published(tmp_path):
    cells, accuracy = list(PUBLISHED), [86.0, 90.0, 88.0, 33.0]
    published = tmp_path / "published.csv"
    header = "cell,validation_accuracy,params,flops,grad_norm,snip,synflow,jacov,nwot,zen\n"
    lines = [f"{c},{a},{4 - n},1,1,1,1,1,1,1\n" for n, (c, a) in enumerate(zip(cells, accuracy, strict=True))]
    published.write_text(header + "".join(lines))
    stored = tmp_path / "stored.csv"
    batches = [
        [{"cell": cell, **dict.fromkeys(nasbench.READINGS, str(place))}]
        for cell, place in zip(cells, (2, 4, 3, 1), strict=True)
    ]
    list(append_rows(stored, ("cell", *nasbench.READINGS), batches[:3]))
    with pytest.raises(SystemExit, match="measure at least 4 first"):
        nasbench.report(published, stored)
    list(append_rows(stored, ("cell", *nasbench.READINGS), batches[3:]))
    (line,) = [line for line in nasbench.report(published, stored).splitlines() if line.startswith("parameters  ")]
    wanted = scipy.stats.spearmanr([4, 3, 2, 1], accuracy).statistic
    assert line.split() == ["parameters", "1.000", f"{wanted:.3f}"]


def test_a_line_that_was_cut_off_is_measured_again(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("a,b\n1,2\n3")
    assert read_rows(file) == [{"a": "1", "b": "2"}]
    assert list(append_rows(file, ("a", "b"), [[{"a": 3, "b": 4}]])) == [[{"a": 3, "b": 4}]]
    assert file.read_text() == "a,b\n1,2\n3,4\n"
