import pytest
import torch

from skiplens.derivatives.tangent.contraction import KernelSum, diagonal_of
from skiplens.derivatives.tangent.pieces import Gradients, OuterProducts
from tests.networks import noise
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
    return Gradients(rows), OuterProducts(left, right)


def kernel(left, right, symmetric, separate):
    n, outputs = len(left.right), left.right.shape[1]
    total = KernelSum((n, len(right.right)), outputs if separate else 0, symmetric, left.right)
    total.add(left, right)
    return total.result()


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("terms", [1, 4])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("scratch", [1, 2**25])
def test_both_forms_give_the_einsum(separate, terms, named, scratch, monkeypatch):
    monkeypatch.setattr("skiplens.derivatives.tangent.contraction._SCRATCH_BYTES", scratch)
    plain_left, outer_left = factors(6, 2, terms, named, seed=0)
    plain_right, outer_right = factors(5, 2, terms, named, seed=1)
    pattern = "nop,mqp->nomq" if separate else "nop,mop->nm"
    expected = torch.einsum(pattern, plain_left.rows, plain_right.rows)
    assert_close(kernel(outer_left, outer_right, False, separate), expected)
    own = torch.einsum(pattern, plain_left.rows, plain_left.rows)
    assert_close(kernel(outer_left, outer_left, True, separate), own)
    assert_close(diagonal_of(outer_left), plain_left.rows.square().sum(-1))
    assert_close(diagonal_of(plain_left), plain_left.rows.square().sum(-1))


@pytest.mark.parametrize("block", [1, 3, 320])
def test_upper_triangle_is_mirrored(block, monkeypatch):
    monkeypatch.setattr("skiplens.derivatives.tangent.contraction._SYMMETRIC_BLOCK", block)
    rows = noise(7, 2, 4)
    total = KernelSum((7, 7), 2, True, rows)
    total.add(Gradients(rows), Gradients(rows))
    total.add(Gradients(rows), Gradients(rows))
    result = total.result()
    assert_close(result, 2 * torch.einsum("nop,mqp->nomq", rows, rows))
    assert torch.equal(result, result.permute(2, 3, 0, 1))
