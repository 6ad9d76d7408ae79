import torch

from skiplens.base.identity import fingerprint


def test_fingerprints_tell_tensors_apart():
    same = fingerprint([("a", torch.arange(3.0))])
    assert same == fingerprint([("a", torch.arange(3.0))])
    others = [
        ("b", torch.arange(3.0)),
        ("a", torch.arange(3.0, dtype=torch.float32)),
        ("a", torch.arange(3.0)[:, None]),
    ]
    assert len({same, *(fingerprint([other]) for other in others)}) == 4
