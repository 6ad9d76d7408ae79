import pytest
import torch

from skiplens.base.errors import DidNotConverge
from skiplens.papers.li2016_shortcuts.hessian import one_shortcut
from skiplens.papers.li2016_shortcuts.hessian.one_shortcut import ToeplitzSpectrum


def dense(B, A, R):
    """Block by block, as the definition says."""
    rows = [torch.cat([B if r == s else (A if r > s else A.T) for s in range(R)], dim=1) for r in range(R)]
    return torch.cat(rows)


def between(eigenvalues, generator, count=12):
    """Levels in gaps that are wide enough for rounding, with how many eigenvalues lie below."""
    gaps = (eigenvalues.diff() > 1e-8 * eigenvalues.abs().max()).nonzero().flatten()
    chosen = gaps[torch.randperm(len(gaps), generator=generator)[:count]]
    return [((eigenvalues[i] + eigenvalues[i + 1]).item() / 2, int(i) + 1) for i in chosen]


def random_blocks(size, generator, asymmetry=1.0):
    B, S, K = (torch.randn(size, size, generator=generator) for _ in range(3))
    return B + B.T, B + B.T + (S + S.T) / 2 + asymmetry * (K - K.T) / 2


@pytest.mark.parametrize("units", [1, 2, 3, 5, 16, 32])
@pytest.mark.parametrize("size", [1, 2, 5, 9])
@pytest.mark.parametrize("asymmetry", [0.05, 1.0, 10.0])
def test_counts_are_those_of_the_dense_matrix(units, size, asymmetry, generator):
    B, A = random_blocks(size, generator, asymmetry)
    count = ToeplitzSpectrum(B, A, units)
    eigenvalues = torch.linalg.eigvalsh(dense(B, A, units))
    assert count.size == len(eigenvalues) and eigenvalues.abs().max() < count.bound
    for level, below in between(eigenvalues, generator):
        assert count.count_below(level) == below


def test_counts_at_great_depth_are_those_of_the_dense_matrix(generator):
    B, A = random_blocks(3, generator)
    eigenvalues = torch.linalg.eigvalsh(dense(B, A, 400))
    count = ToeplitzSpectrum(B, A, 400)
    for level, below in between(eigenvalues, generator, count=40):
        assert count.count_below(level) == below


@pytest.mark.parametrize("shape", ["no coupling", "symmetric", "rank one", "zero"])
def test_degenerate_blocks(shape, generator):
    B, A = random_blocks(4, generator)
    if shape == "no coupling":
        A = B  # every unit alike: R λ(B) and zeros
    elif shape == "symmetric":
        A = (A + A.T) / 2
    elif shape == "rank one":
        B = B[:, :1] @ B[:, :1].T
        A = B + 1e-3 * torch.outer(A[0], A[1])
    else:
        B = A = torch.zeros(4, 4)
    eigenvalues = torch.linalg.eigvalsh(dense(B, A, 6))
    count = ToeplitzSpectrum(B, A, 6)
    scale = eigenvalues.abs().max().item() or 1.0
    for level in (-0.5 * scale, -1e-9 * scale, 1e-9 * scale, 0.3 * scale, 2 * scale):
        assert count.count_below(level) == int((eigenvalues < level).sum())
    assert count.count_below(0.0) <= int((eigenvalues < 1e-9 * scale).sum())


def test_counts_grow_with_the_level(generator):
    B, A = random_blocks(6, generator)
    count = ToeplitzSpectrum(B, A, 5000)
    found = [count.count_below(level) for level in torch.linspace(-count.bound, count.bound, 50).tolist()]
    assert found == sorted(found) and found[0] == 0 and found[-1] == count.size


def test_a_level_that_cannot_be_decided_is_told(monkeypatch, generator):
    monkeypatch.setattr(one_shortcut, "_ASYMMETRY", -1.0)  # nothing is symmetric enough
    with pytest.raises(DidNotConverge, match=r"could not be counted.*use the dense matrix"):
        ToeplitzSpectrum(*random_blocks(3, generator), 4).count_below(0.1)
