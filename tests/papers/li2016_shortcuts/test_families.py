import torch

from skiplens.papers.li2016_shortcuts.common import FAMILIES
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_chain
from tests.tolerances import assert_close


def test_shortcuts_and_plain_networks(generator):
    W = FAMILIES["xavier"].start(6, generator)
    eye = torch.eye(10)
    a, b, c, d, e, f = W
    expected = {
        "xavier": f @ e @ d @ c @ b @ a,
        "orthogonal": f @ e @ d @ c @ b @ a,
        "1-shortcut": (f + eye) @ (e + eye) @ (d + eye) @ (c + eye) @ (b + eye) @ (a + eye),
        "2-shortcut": (f @ e + eye) @ (d @ c + eye) @ (b @ a + eye),
        "3-shortcut": (f @ e @ d + eye) @ (c @ b @ a + eye),
    }
    for name, family in FAMILIES.items():
        assert_close(linear_chain(family.units(W)).whole, expected[name])


def test_where_weights_start(generator):
    for name, size in (("xavier", 1.0), ("1-shortcut", 0.01), ("2-shortcut", 0.01), ("3-shortcut", 0.01)):
        W = FAMILIES[name].start(200, generator)
        # 20,000 entries of variance size²/10: the mean square has a relative standard error of 1 %
        assert abs(W.square().mean() * 10 / size**2 - 1) < 0.04
    Q = FAMILIES["orthogonal"].start(3, generator)
    assert_close(Q @ Q.mT, torch.eye(10).expand(3, -1, -1))
