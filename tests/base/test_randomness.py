import numpy as np
import torch

from skiplens.base.randomness import Randomness


def test_same_name_same_numbers():
    first, second = (torch.randn(5, generator=Randomness(3).child("weights", 2).torch()) for _ in range(2))
    assert torch.equal(first, second)
    assert np.array_equal(Randomness(3).numpy().random(4), Randomness(3).numpy().random(4))


def test_names_never_share_a_stream():
    names = [("a",), ("a", "b"), ("a b",), ("ab",), ("a", 1), ("a", "1"), ("a1",), ("b",), ("a", "int:1")]
    streams = [Randomness(seed).child(*name).entropy() for seed in (0, 1, 10) for name in names]
    assert len(set(streams)) == len(streams)


def test_grandchildren_are_named_by_their_path():
    assert Randomness(0).child("a").child("b") == Randomness(0).child("a", "b")
    assert Randomness(0).child("a").child("b").entropy() != Randomness(0).child("b").child("a").entropy()


def test_a_separator_in_a_name_does_not_forge_another_name():
    assert Randomness(0).child('a", "str:b').entropy() != Randomness(0).child("a", "b").entropy()


def test_entropy_is_the_same_on_every_machine():
    assert Randomness(0).child("weights").entropy() == 274804405069556167


def test_global_generators_are_neither_read_nor_set():
    torch.manual_seed(1)
    np_state, before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002 - it is the global one we watch
    torch.randn(3, generator=Randomness(0).torch())
    Randomness(0).numpy().random(3)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(np_state, np.random.get_state()[1])  # noqa: NPY002
    torch.manual_seed(2)
    assert torch.equal(torch.randn(3, generator=Randomness(0).torch()), torch.randn(3, generator=Randomness(0).torch()))
