import sys

import pytest
import torch

import skiplens as sl
from skiplens.base.errors import MissingDependencyError
from skiplens.report.during_training.monitor import write_scalars
from tests.report.during_training.subjects import FREELY, network, samples


class Kept:
    """A writer that keeps what it is told."""

    def __init__(self):
        self.scalars, self.flushed = [], 0

    def add_scalar(self, tag, scalar_value, global_step):
        self.scalars.append((tag, scalar_value, global_step))

    def flush(self):
        self.flushed += 1


def test_scalars_and_rows_with_named_entries_are_written():
    writer = Kept()
    numbers = {"depth": torch.tensor(1.5), "scales": torch.tensor([1.0, 2.0]), "energy": torch.ones(3)}
    write_scalars(writer, 7, numbers, {"scales": ("a", "b")})
    assert writer.flushed == 1
    assert writer.scalars == [
        ("skiplens/depth", 1.5, 7),
        ("skiplens/scales/a", 1.0, 7),
        ("skiplens/scales/b", 2.0, 7),
    ]


def test_a_writer_of_the_user_is_used_and_left_open():
    writer = Kept()
    with sl.Monitor(
        network(), samples(), every=1, quantities=("scales", "weight_norm"), tensorboard=writer, share=FREELY
    ) as monitor:
        monitor.step()
    tags = [tag for tag, _, step in writer.scalars if step == 1]
    blocks = monitor.reading.block_names
    assert sorted(tags) == sorted(
        [*(f"skiplens/scales/{name}" for name in blocks), "skiplens/weight_scale", "skiplens/weight_norm"]
    )


def test_tensorboard_reads_what_was_written(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "board"
    with sl.Monitor(
        network(), samples(), every=1, quantities=("weight_norm",), tensorboard=folder, share=FREELY
    ) as monitor:
        monitor.step()
        monitor.step()
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    read = events.Scalars("skiplens/weight_norm")
    assert [event.step for event in read] == [0, 1, 2]
    # TensorBoard keeps float32
    expected = monitor.reading["weight_norm"].float().tolist()
    assert [event.value for event in read] == expected


def test_a_missing_tensorboard_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingDependencyError, match=r"writing TensorBoard files.*skiplens\[tensorboard\]"):
        sl.Monitor(network(), samples(), tensorboard=tmp_path).start()
