import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.training.source import source_of
from tests.training.networks import samples

CPU = torch.device("cpu")


def stream(data, start: int, count: int, batch_size: int | None = None) -> list[torch.Tensor]:
    source = source_of(data, batch_size, Randomness(4), CPU)
    return [batch.inputs for batch in itertools.islice(source.batches(start), count)]


def draw(generator):
    return torch.randn(2, 3, generator=generator), torch.zeros(2)


@given(start=st.integers(0, 9), kind=st.sampled_from(["samples", "loader", "drawn"]))
def test_a_batch_depends_on_its_number_only(start, kind):
    loader = DataLoader(TensorDataset(*samples()), batch_size=8, shuffle=True)
    data, size = {"samples": (samples(), 8), "loader": (loader, None), "drawn": (draw, None)}[kind]
    whole = stream(data, 0, 12, size)
    with torch.random.fork_rng():
        rest = stream(data, start, 12 - start, size)
    assert all(map(torch.equal, whole[start:], rest))


@given(count=st.integers(1, 30), size=st.integers(1, 40))
def test_an_epoch_is_a_permutation_in_batches(count, size):
    inputs = torch.arange(count)[:, None]
    source = source_of((inputs, torch.zeros(count)), size, Randomness(0), CPU)
    epoch = list(itertools.islice(source.batches(0), source.steps_per_epoch))
    assert sorted(torch.cat([batch.inputs for batch in epoch]).flatten().tolist()) == list(range(count))
    assert all(batch.samples == min(size, count) for batch in epoch[:-1]) and 1 <= epoch[-1].samples <= size


def test_all_samples_at_once_keep_their_order():
    inputs, targets = samples()
    (batch,) = stream((inputs, targets), 5, 1)
    assert torch.equal(batch, inputs)


def test_arguments_without_samples_go_along():
    inputs, targets = samples()
    data = ({"x": inputs, "scale": torch.tensor(2.0)}, targets)
    (batch,) = stream(data, 0, 1, 8)
    assert batch["x"].shape == (8, 4) and batch["scale"].item() == 2


def test_a_loader_that_gets_shorter_is_told():
    class Shrinking:
        passes = 0

        def __iter__(self):
            self.passes += 1
            return iter([samples()] * (3 if self.passes < 3 else 2))

    with pytest.raises(InvalidInputError, match="data gave 2 batches in epoch 1 instead of 3"):
        stream(Shrinking(), 0, 6)


def test_fingerprints_tell_samples_apart():
    inputs, targets = samples()
    words = [source_of((inputs + k, targets), None, Randomness(0), CPU).fingerprint() for k in (0, 0, 1)]
    assert words[0] == words[1] != words[2]
    assert source_of(draw, None, Randomness(0), CPU).fingerprint() == "not known beforehand"
