import pytest
import torch
from torch import nn

from skiplens.graph.operations import patches
from skiplens.tangent.gradients import Buffer, Deferred, Factored, Gradients, KernelSum, OuterProducts, diagonal_of
from skiplens.tangent.rules import rules_of
from tests.networks import drawn, noise
from tests.tolerances import assert_close


def factors(samples, outputs, terms, named, seed):
    """The same gradients in both forms."""
    right = noise(samples, outputs, terms, 3, seed=seed)
    if named:
        left = torch.randint(0, 4, (samples, terms), generator=torch.Generator().manual_seed(seed))
        features = torch.nn.functional.one_hot(left, 4).to(right)
    else:
        left = features = noise(samples, terms, 5, seed=seed + 100)
    rows = torch.einsum("ntf,notc->nofc", features, right).flatten(2)
    return Gradients(rows), Factored((OuterProducts(left, right),))


def kernel(left, right, symmetric, separate):
    first, other = left.parts[0].right, right.parts[0].right
    total = KernelSum((len(first), len(other)), first.shape[1] if separate else 0, symmetric, first)
    total.add(left, right)
    return total.result()


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("terms", [1, 4])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("scratch", [1, 2**25])
def test_both_forms_give_the_einsum(separate, terms, named, scratch, monkeypatch):
    monkeypatch.setattr("skiplens.tangent.gradients._PRODUCT_BYTES", scratch)
    plain_left, outer_left = factors(6, 2, terms, named, seed=0)
    plain_right, outer_right = factors(5, 2, terms, named, seed=1)
    pattern = "nop,mqp->nomq" if separate else "nop,mop->nm"
    expected = torch.einsum(pattern, plain_left.rows, plain_right.rows)
    assert_close(kernel(outer_left, outer_right, False, separate), expected)
    own = torch.einsum(pattern, plain_left.rows, plain_left.rows)
    assert_close(kernel(outer_left, outer_left, True, separate), own)
    assert_close(diagonal_of(outer_left), plain_left.rows.square().sum(-1))
    assert_close(diagonal_of(plain_left), plain_left.rows.square().sum(-1))


def tied(samples, seed):
    """Gradients of a table of 4 × 3 that is looked up in and multiplied with, of which some terms are zero."""
    looked_up, inputs = noise(samples, 2, 5, 3, seed=seed), noise(samples, 6, 3, seed=seed + 1)
    names = torch.randint(0, 4, (samples, 5), generator=torch.Generator().manual_seed(seed))
    cotangents = noise(samples, 2, 6, 4, seed=seed + 2)
    cotangents[:, :, [0, 3]] = 0  # as of places that no output comes from
    rows = torch.einsum("ntf,notc->nofc", torch.nn.functional.one_hot(names, 4).to(inputs), looked_up)
    rows = (rows + torch.einsum("notf,ntc->nofc", cotangents, inputs)).flatten(2)
    return rows, Factored((OuterProducts(names, looked_up), OuterProducts(inputs, cotangents)))


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("scratch", [1, 2**25])
def test_a_table_that_is_also_a_matrix_meets_itself(separate, scratch, monkeypatch):
    monkeypatch.setattr("skiplens.tangent.gradients._PRODUCT_BYTES", scratch)
    (rows, left), (others, right) = tied(4, seed=0), tied(3, seed=9)
    pattern = "nop,mqp->nomq" if separate else "nop,mop->nm"
    assert_close(kernel(left, right, False, separate), torch.einsum(pattern, rows, others))
    assert_close(kernel(left, left, True, separate), torch.einsum(pattern, rows, rows))
    assert_close(diagonal_of(left), rows.square().sum(-1))


def test_terms_that_are_zero_for_all_samples_are_left_out():
    form = tied(4, seed=0)[1].parts[1].living()
    assert form.left.shape == (4, 4, 3) and form.right.shape == (4, 2, 4, 4)
    assert form.living() is form


def deferred(layer, samples, seed, *shape):
    """A layer's gradients kept as inputs and cotangents, and the dense rows from autograd."""
    x, b = noise(samples, *shape, seed=seed), noise(samples, 2, *layer(noise(1, *shape)).shape[1:], seed=seed + 50)
    rows = [
        torch.autograd.grad(layer(x[n : n + 1]), layer.weight, b[n, o][None])[0] for n in range(samples) for o in (0, 1)
    ]
    buffer = Buffer(x.new_empty(0), 0)
    factor = Deferred(rules_of(layer)["weight"], layer, x, b, tuple(layer.weight.shape), buffer)
    return factor, torch.stack(rows).reshape(samples, 2, -1)


@pytest.mark.parametrize("slice_bytes", [1, 1000, 2**25])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.Linear(3, 5), (4, 3)), (nn.Conv2d(2, 5, 3), (2, 5, 5)), (nn.Conv2d(4, 6, 3, groups=2), (4, 4, 4))],
    ids=["linear", "convolution", "groups"],
)
@pytest.mark.parametrize("separate", [True, False])
def test_deferred_gradients_give_the_einsum(layer, shape, slice_bytes, separate, monkeypatch):
    monkeypatch.setattr("skiplens.tangent.gradients._SCRATCH_BYTES", {"cpu": slice_bytes})
    monkeypatch.setattr("skiplens.tangent.gradients._SAMPLES_AT_ONCE", {"cpu": 2})
    layer = drawn(layer.double())
    (left, left_rows), (right, right_rows) = deferred(layer, 5, 0, *shape), deferred(layer, 3, 1, *shape)
    pattern = "nop,mqp->nomq" if separate else "nop,mop->nm"
    for other, rows, symmetric in ((right, right_rows, False), (left, left_rows, True)):
        total = KernelSum((5, len(rows)), 2 if separate else 0, symmetric, rows)
        with torch.no_grad():
            total.add(left, other)
        assert_close(total.result(), torch.einsum(pattern, left_rows, rows))
    with torch.no_grad():
        assert_close(diagonal_of(left), left_rows.square().sum(-1))


@pytest.mark.parametrize(("room", "times"), [(1, 2 * 5), (2 * 5 * 18 * 8 * 2, 2)])
def test_patches_are_made_once_where_there_is_room_for_them(room, times, monkeypatch):
    monkeypatch.setattr("skiplens.tangent.gradients._SCRATCH_BYTES", {"cpu": room})
    monkeypatch.setattr("skiplens.tangent.gradients._SAMPLES_AT_ONCE", {"cpu": 3})
    layer = drawn(nn.Conv2d(2, 5, 3).double())
    factor, rows = deferred(layer, 5, 0, 2, 3, 3)
    made = []
    monkeypatch.setattr("skiplens.tangent.rules.patches", lambda *a: made.append(1) or patches(*a))
    with torch.no_grad():
        found = [part.rows.clone() for part in factor.slices(1, side=0)]
    assert_close(torch.cat(found, dim=2), rows)
    assert len(made) == times


@pytest.mark.parametrize("block", [1, 3, 320])
def test_upper_triangle_is_mirrored(block, monkeypatch):
    monkeypatch.setattr("skiplens.tangent.gradients._SYMMETRIC_BLOCK", block)
    rows = noise(7, 2, 4)
    total = KernelSum((7, 7), 2, True, rows)
    total.add(Gradients(rows), Gradients(rows))
    total.add(Gradients(rows), Gradients(rows))
    result = total.result()
    assert_close(result, 2 * torch.einsum("nop,mqp->nomq", rows, rows))
    assert torch.equal(result, result.permute(2, 3, 0, 1))
