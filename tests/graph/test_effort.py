from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import skiplens as sl
from skiplens.base.preserve_state import threads
from skiplens.graph import lens
from skiplens.graph.batch import Batch
from skiplens.graph.lens import OPERATIONS, Subject, affordable, cut_note, operations_of


def test_operations_are_counted_for_one_sample():
    batch = Batch(torch.ones(5, 3), torch.zeros(5))
    assert operations_of(nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 2)), batch) == 2 * (3 * 7 + 7 * 2)


def test_a_batch_norm_in_training_mode_can_be_counted_and_stays_as_it_was():
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4))
    assert operations_of(model, Batch(torch.randn(5, 3), torch.zeros(5))) == 2 * 3 * 4
    assert int(model[1].num_batches_tracked) == 0


class Queries(nn.Module):
    """Hands views of its parameters to a submodule and lets it return one."""

    def __init__(self):
        super().__init__()
        self.learned, self.pick, self.read = nn.Parameter(torch.ones(4, 3)), nn.Identity(), nn.Linear(3, 2)

    def forward(self, x):
        return self.read(self.pick(self.learned[1:])).sum(0) + x


def test_views_of_parameters_can_be_counted():
    model = Queries()
    assert operations_of(model, Batch(torch.ones(5, 2), torch.zeros(5))) == 2 * 3 * 3 * 2 / 2  # whatever the samples
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_cheap_models_get_all_samples_and_costly_ones_what_fits():
    assert affordable(1e3, 100, 64) == 64
    assert affordable(OPERATIONS / 1000, 100, 64) == 10
    assert affordable(OPERATIONS, 100, 64) == 1
    assert affordable(OPERATIONS, 100, 64, least=2) == 2


@pytest.mark.parametrize(
    ("layer", "training", "count"), [(nn.Identity, True, 1), (nn.BatchNorm1d, False, 1), (nn.BatchNorm1d, True, 2)]
)
def test_a_costly_subject_is_cut_and_says_so(layer, training, count):
    """To one sample, and to two where they depend on each other."""
    model = nn.Sequential(nn.Linear(3, 2), layer(2)).train(training)
    subject = Subject(model, Batch(torch.rand(6, 3), torch.zeros(6)), "costly")
    batch, notes = subject.few(4, passes=OPERATIONS)
    assert batch.samples == count
    (note,) = notes
    assert note.startswith(f"A pass through this model is costly, so {count} instead of 4 samples were looked at. ")
    assert subject.few(9, passes=1)[0].samples == 6 and subject.few(9, passes=1)[1] == ()


def test_up_to_eight_samples_are_counted_with_the_fewest_passes():
    subject = Subject(nn.Linear(3, 2), Batch(torch.ones(20, 3), torch.zeros(20)), "costly", allowed=100.0, counted=1.0)
    assert [subject.few(20, passes=25, fewest=fewest)[0].samples for fewest in (1, 5, 15, 40)] == [8, 8, 6, 4]
    assert subject.few(5, passes=25, fewest=1)[0].samples == 5
    assert subject.few(20, passes=5, fewest=1)[0].samples == 20


def test_a_faster_device_may_take_more_operations(monkeypatch):
    data, cost = (torch.ones(64, 3), torch.zeros(64)), OPERATIONS / (10 * lens.PASSES)
    monkeypatch.setattr(lens, "operations_of", lambda model, batch: cost)
    counts = []
    for times in (1.0, 3.0):
        monkeypatch.setattr(lens, "FASTER", {"cpu": times})
        counts.append(lens.prepared(nn.Linear(3, 2), data, 64, "costly").batch.samples)
    assert counts == [10, 30]


def test_nothing_is_told_where_nothing_was_cut():
    assert cut_note(4, 4) == ()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Linear(3, 3)

    def forward(self, x):
        return x + self.branch(x).tanh()


@pytest.mark.parametrize(("samples", "counts"), [(3, [3]), (6, [6, 4])])
def test_a_model_is_taken_apart_once_for_each_number_of_samples(samples, counts, monkeypatch):
    """Paths look at 16 samples or what there is, Jacobians and hypotheses at 4."""
    taken, plain = [], lens.dissect

    def counted(model, inputs):
        taken.append(len(inputs))
        return plain(model, inputs)

    monkeypatch.setattr(lens, "dissect", counted)
    for place in (
        "skiplens.jacobians.hypotheses.model_check",
        "skiplens.jacobians.spectrum",
        "skiplens.paths.spectrum",
    ):
        monkeypatch.setattr(f"{place}.dissect", counted)
    model = nn.Sequential(Block(), Block())
    data = (torch.randn(samples, 3), torch.arange(samples) % 3)
    report = sl.inspect(model, data, lenses=("structure", "paths", "jacobians", "convergence"))
    assert not report.problems and taken == counts
    alone = sl.path_spectrum(model, data[0], blocks=True, signs=4)  # takes it apart by itself
    assert torch.equal(report.reading(sl.PathSpectrum).energy, alone.energy)


def test_the_network_of_some_samples_holds_them():
    batch = Batch(torch.randn(5, 3), torch.zeros(5))
    subject = Subject(nn.Sequential(Block(), Block()), batch, "blocks")
    few = subject.network_of(batch.first(2))
    assert few is subject.network_of(batch.first(2)) and subject.network_of(batch) is subject.network
    (output,) = few.outputs().values()
    torch.testing.assert_close(output, subject.model(batch.inputs[:2]))


def test_operations_are_those_that_torch_counts():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(2), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True))
    model = nn.Sequential(model[0], nn.Flatten(2), nn.Linear(36, 4), model[2]).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.ones(2, 3, 8, 8))
    assert operations_of(model, Batch(torch.ones(5, 3, 8, 8), torch.zeros(5))) == counter.get_total_flops() / 2


def test_small_networks_are_worth_one_thread():
    small = Subject(nn.Linear(2, 2), Batch(torch.ones(4, 2), torch.zeros(4)), "small")
    with threads(3):
        assert small.threads == 1
        assert replace(small, counted=lens.WORTH_THREADS / 4).threads == 3
