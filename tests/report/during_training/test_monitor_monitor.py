import copy
import math

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError, SettingsError, SkiplensError
from skiplens.readings.file import read_file, write_file
from skiplens.report.during_training import monitor as during_training_monitor
from skiplens.report.during_training.quantities import MEASURES
from skiplens.report.during_training.record import QUANTITIES, MonitorReading
from skiplens.signal.structure import StructureReading
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from tests.networks import chain, noise
from tests.report.during_training.subjects import FREELY, Clock, Residual, network, optimiser, samples, update
from tests.sample_readings import structure
from tests.training.networks import Counting

NORM = {"quantities": ("weight_norm",), "share": FREELY}
"""The cheapest monitor, for what does not depend on what is measured."""


def trained(updates=5, monitor=None, model=None):
    """A network after some updates and the random numbers that come next, with or without a monitor."""
    torch.manual_seed(7)
    model = network() if model is None else model
    descent = optimiser(model)
    with monitor(model) if monitor else torch.enable_grad() as following:
        for _ in range(updates):
            loss = update(model, descent)
            if monitor:
                following.step(loss)
    state = {**model.state_dict(), **{f"{n}.grad": p.grad for n, p in model.named_parameters()}}
    return state, torch.rand(3), following


def test_a_monitored_run_is_the_same_run_bit_for_bit():
    plain, next_numbers, _ = trained()
    watched, next_watched, monitor = trained(monitor=lambda model: sl.Monitor(model, samples(), every=2, share=FREELY))
    assert plain.keys() == watched.keys() and all(torch.equal(plain[name], watched[name]) for name in plain)
    assert torch.equal(next_numbers, next_watched)
    reading = monitor.reading
    assert reading.steps.tolist() == [0, 2, 4, 5] and set(reading.costs) == set(QUANTITIES) and not reading.left_out
    assert all(not bool(rows.isnan().any()) for rows in reading.measured.values())


def test_the_run_without_a_monitor_would_be_noticed_to_differ():
    """The test above can fail: a loop that draws one more number ends elsewhere."""
    plain, *_ = trained()
    torch.manual_seed(7)
    model = network()
    descent = optimiser(model)
    for _ in range(5):
        update(model, descent)
        torch.rand(1)
    assert not torch.equal(plain["head.weight"], model.head.weight)


def test_modes_buffers_and_hooks_stay():
    model = nn.Sequential(Residual(), Counting())
    model[0].dropout.eval()
    model[0].head.register_forward_hook(lambda *_: None)
    modes, calls = [module.training for module in model.modules()], model[1].calls.clone()
    sl.Monitor(model, samples(), quantities=("depth", "curvature", "kernel")).start()
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model[1].calls, calls) and len(model[0].head._forward_hooks) == 1


def test_looks_are_taken_at_the_start_each_so_many_steps_and_the_end():
    _, _, monitor = trained(7, lambda model: sl.Monitor(model, samples(), every=3, **NORM))
    reading = monitor.reading
    assert isinstance(reading, MonitorReading) and reading.steps.tolist() == [0, 3, 6, 7] and reading.looks == 4
    assert reading.losses.isnan().tolist() == [True, False, False, True]


def test_the_loss_of_a_look_is_the_one_handed_over():
    monitor = sl.Monitor(network(), samples(), every=2, **NORM).start()
    for loss in (5.0, torch.tensor(3.0, requires_grad=True), None, 1.0):
        monitor.step(loss)
    assert monitor.reading.losses[1:].tolist() == [3.0, 1.0]


def test_steps_may_be_told():
    monitor = sl.Monitor(network(), samples(), every=10, **NORM).start(95)
    for step in (95, 96, 96, 99, 103, 104, 110):  # a repeated step is a part of an update; jumps cross a look
        monitor.step(step=step)
    assert monitor.reading.steps.tolist() == [95, 103, 110]


def test_a_loop_that_only_steps_is_looked_at_after_its_first_update():
    monitor = sl.Monitor(network(), samples(), every=2, **NORM)
    for loss in (4.0, 3.0, 2.0):
        monitor.step(loss)
    monitor.close()
    assert monitor.reading.steps.tolist() == [1, 2, 3] and monitor.reading.losses[:2].tolist() == [4.0, 3.0]


def test_a_monitor_that_never_started_has_nothing_to_say():
    reading = sl.Monitor(network(), samples(), **NORM).close()
    assert reading.looks == 0 and reading.overhead == math.inf and reading.budget_sentences == ()


def test_a_monitor_starts_once():
    monitor = sl.Monitor(network(), samples(), **NORM).start()
    with pytest.raises(InvalidInputError, match="has started already, and 0 updates"):
        monitor.start()
    with monitor:  # entering a started monitor is fine
        monitor.step()


def test_an_error_in_the_loop_passes_and_what_there_is_gets_written(tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        sl.Monitor(network(), samples(), every=2, path=tmp_path / "run", **NORM) as monitor,
    ):
        for _ in range(3):
            monitor.step()
        raise ZeroDivisionError
    assert read_file(tmp_path / "run").steps.tolist() == [0, 2]


def test_it_looks_less_often_where_it_would_take_too_long(monkeypatch):
    clock = Clock()
    slow(monkeypatch, clock, {"curvature": 2.0})
    monitor = sl.Monitor(network(), samples(), every=1, share=0.1, quantities=("weight_norm", "curvature"), clock=clock)
    monitor.start()
    for _ in range(100):
        clock.now += 1
        monitor.step()
    reading = monitor.close()
    curvature_steps, _ = reading.seen("largest_eigenvalue")
    assert curvature_steps.tolist() == [0, 40, 60, 80, 100]  # two looks are paid for after 40 seconds
    assert len(reading.seen("weight_norm")[0]) == 101 and reading.looks == 101
    assert reading.skipped == {"curvature": 96}
    assert reading.own_seconds == pytest.approx(10) and reading.run_seconds == pytest.approx(100)
    assert reading.overhead == pytest.approx(0.1)
    assert reading.budget_sentences == (
        "curvature was due 96 more times and left out, so that looking stays within 10 % of the run's time; "
        "it took 2 s a look.",
    )


def slow(monkeypatch, clock, costs):
    """Let measurements take the time of `costs` on the clock."""

    def slowed(measure, seconds):
        def measured(sight):
            clock.now += seconds
            return measure(sight)

        return measured

    for name, seconds in costs.items():
        monkeypatch.setitem(MEASURES, name, slowed(MEASURES[name], seconds))


def test_what_a_look_takes_beside_measuring_is_paid_by_those_that_were_measured(monkeypatch, tmp_path):
    """A cheap quantity must not make expensive ones pay for the files that are written for it alone."""
    clock = Clock()
    monkeypatch.setattr(during_training_monitor, "write_file", lambda *_: setattr(clock, "now", clock.now + 1.0))
    slow(monkeypatch, clock, {"curvature": 3.0})
    quantities = ("weight_norm", "curvature")
    monitor = sl.Monitor(
        network(), samples(), every=1, share=0.1, quantities=quantities, clock=clock, path=tmp_path / "run"
    ).start()
    assert {name: float(cost[0]) for name, cost in monitor.reading.costs.items()} == {
        "weight_norm": 0.5,
        "curvature": 3.5,
    }
    for _ in range(1000):
        clock.now += 1
        monitor.step()
    reading = monitor.reading
    assert reading.own_seconds <= 0.1 * reading.run_seconds
    norms, curvatures = (int((~reading.costs[name].isnan()).sum()) for name in quantities)
    # half of a tenth of 1000 seconds each: at a second or less a look, and at four or less
    assert norms >= 49 and curvatures >= 12


def test_a_short_run_says_that_the_first_look_was_more_than_its_share(monkeypatch):
    clock = Clock()
    slow(monkeypatch, clock, {"weight_norm": 3.0})
    monitor = sl.Monitor(network(), samples(), quantities=("weight_norm",), clock=clock).start()
    clock.now += 6
    monitor.step()
    reading = monitor.close()
    assert reading.looks == 1 and reading.skipped == {"weight_norm": 1} and reading.overhead == pytest.approx(0.5)
    assert reading.budget_sentences[1] == (
        "Looking took 3 s beside a run of 6 s, more than the 5 % that it may: the first look is always taken, and the "
        "run was too short to pay for it."
    )


def test_what_a_model_cannot_give_is_said_once_and_left_out():
    monitor = sl.Monitor(chain(), noise(6, 3), every=1, share=FREELY).start()
    monitor.step()
    reading = monitor.reading
    assert set(reading.left_out) == {"depth", "scales", "curvature"}
    assert "no residual blocks" in reading.left_out["depth"] and "inputs only" in reading.left_out["curvature"]
    assert reading.steps.tolist() == [0, 1] and set(reading.costs) == {"weight_norm", "jacobians", "kernel"}
    assert reading.notes == () and "mean_depth" not in reading.measured
    with pytest.raises(InvalidInputError, match="'mean_depth' was not measured"):
        reading["mean_depth"]


class Unexportable(nn.Module):
    """Asks NumPy about the values of its data, which no graph can."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) if x.detach().numpy().sum() > -1e9 else x


def test_a_model_without_a_graph_is_followed_in_what_needs_none():
    reading = sl.Monitor(Unexportable(), samples(), quantities=("depth", "jacobians", "weight_norm")).start().reading
    assert set(reading.left_out) == {"depth", "jacobians"} and list(reading.costs) == ["weight_norm"]
    assert reading.own_seconds > 0


def test_what_fails_later_is_noted_once_and_tried_again():
    model = network()
    monitor = sl.Monitor(model, samples(), every=1, quantities=("curvature", "weight_norm"), share=FREELY).start()
    good = copy.deepcopy(model.state_dict())
    for broken in (True, True, False):
        with torch.no_grad():
            model.head.weight.fill_(math.nan) if broken else model.load_state_dict(good)
        monitor.step()
    reading = monitor.reading
    assert reading["largest_eigenvalue"].isnan().tolist() == [False, True, True, False] and not reading.left_out
    assert len(reading.notes) == 1 and reading.notes[0].startswith("curvature could not be measured after 1 updates: ")
    assert reading.own_seconds > 0


def test_the_file_is_whole_after_each_look(tmp_path):
    path = tmp_path / "run"
    model = network()
    monitor = sl.Monitor(model, samples(), every=1, path=path, **NORM).start()
    for looks in range(1, 4):  # a process that is killed here leaves what is read here
        back = read_file(path)
        assert isinstance(back, MonitorReading) and back.looks == looks
        assert torch.equal(back["weight_norm"], monitor.reading["weight_norm"])
        update(model, optimiser(model))
        monitor.step()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run"]


def test_a_run_that_goes_on_keeps_what_was_seen_before(tmp_path):
    path, model = tmp_path / "run", network()
    options = {"every": 2, "quantities": ("weight_norm", "kernel"), "share": FREELY, "path": path}
    with sl.Monitor(model, samples(), **options) as first:
        for _ in range(5):
            update(model, optimiser(model))
            first.step()
    before = first.reading
    assert before.steps.tolist() == [0, 2, 4, 5] and before.run_seconds == first.reading.run_seconds  # it has ended
    again = sl.Monitor(model, samples(), **options).start(4)  # as from a checkpoint after four updates
    reading = again.reading
    assert reading.steps.tolist() == [0, 2, 4] and torch.equal(reading.first_kernel, before.first_kernel)
    assert torch.equal(reading["weight_norm"][:2], before["weight_norm"][:2])
    assert float(reading["kernel_drift"][2]) == pytest.approx(float(before["kernel_drift"][3]), rel=1e-9)
    assert reading.run_seconds > before.run_seconds
    fresh = sl.Monitor(model, samples(), **options).start()
    assert fresh.reading.steps.tolist() == [0] and read_file(path).looks == 1


def test_files_that_are_not_its_own(tmp_path):
    path = tmp_path / "other"
    write_file(path, structure())
    with pytest.raises(InvalidInputError, match=r"holds a 'structure' reading.*Choose another path"):
        sl.Monitor(network(), samples(), path=path)
    assert isinstance(read_file(path), StructureReading)
    own = tmp_path / "own"
    sl.Monitor(network(), samples(), quantities=("scales",), path=own).start()
    three = nn.Sequential(network(), nn.Linear(3, 4), network())
    with pytest.raises(InvalidInputError, match=r"another model: scales has shape \(2,\) there and \(4,\) here"):
        sl.Monitor(three, samples(), quantities=("scales",), path=own, share=FREELY).start(1)


def test_a_folder_that_cannot_be_written_is_an_error_at_once_and_a_note_later(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(SkiplensError, match="Could not write"):
        sl.Monitor(network(), samples(), path=blocker / "run", **NORM).start()
    folder = tmp_path / "folder"
    monitor = sl.Monitor(network(), samples(), path=folder / "run", every=1, **NORM).start()
    (folder / "run").unlink()
    folder.rmdir()
    folder.write_text("")
    monitor.step()
    monitor.step()
    assert len(monitor.reading.notes) == 1 and "could not be written at once" in monitor.reading.notes[0]
    with pytest.raises(SkiplensError, match="Could not write"):
        monitor.close()


def test_a_probe_that_the_model_does_not_take_is_an_error():
    with pytest.raises(InvalidInputError, match="The model cannot be called with these inputs"):
        sl.Monitor(network(), noise(4, 9)).start()


def test_it_follows_a_run_of_skiplens():
    model = network()
    monitor = sl.Monitor(model, samples(), every=2, **NORM).start()
    train(
        model,
        samples(),
        Recipe(learning_rate=0.05, steps=4),
        callbacks=[lambda moment: monitor.step(moment.loss_tensor, moment.step)],
    )
    reading = monitor.close()
    assert reading.steps.tolist() == [0, 2, 4] and not bool(reading.losses[1:].isnan().any())


def test_looking_works_inside_the_surroundings_of_a_loop():
    model = network().float()
    inputs, targets = samples()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        inside = sl.Monitor(model, (inputs.float(), targets), quantities=("curvature",)).start().reading
    outside = sl.Monitor(model, (inputs.float(), targets), quantities=("curvature",)).start().reading
    assert torch.equal(inside["largest_eigenvalue"], outside["largest_eigenvalue"])


def test_weights_of_few_bits_are_looked_at_in_float32():
    torch.set_default_dtype(torch.float32)
    model, (inputs, targets) = network().bfloat16(), samples()
    before = copy.deepcopy(model.state_dict())
    quantities = ("weight_norm", "curvature", "depth")
    monitor = sl.Monitor(model, (inputs, targets), every=1, quantities=quantities, share=FREELY).start()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        model.head.weight.mul_(2)
    monitor.step()
    wide = copy.deepcopy(model).float()
    expected = sl.Monitor(wide, (inputs.float(), targets), quantities=quantities).start().reading
    found = monitor.reading
    assert not found.left_out and "float32 copy" in found.notes[0]
    for name, rows in expected.measured.items():
        assert torch.equal(found[name][1], rows[0]), name
    assert not torch.equal(found["weight_norm"][0], found["weight_norm"][1])


def test_a_look_that_fails_as_a_whole_does_not_end_the_run(monkeypatch):
    monitor = sl.Monitor(network(), samples(), every=1, **NORM).start()

    def refuse():
        raise MemoryError("no room")

    monkeypatch.setattr(monitor._watch.sight, "opened", refuse)
    monitor.step()
    monitor.step()
    assert monitor.reading.steps.tolist() == [0]
    assert monitor.reading.notes == ("There is no look after 1 updates: MemoryError: no room.",)


def test_bad_options():
    with pytest.raises(SettingsError, match="every=0; ask for at least 1"):
        sl.Monitor(network(), samples(), every=0)
    with pytest.raises(SettingsError, match=r"share=0.0; give a positive number such as 0\.05"):
        sl.Monitor(network(), samples(), share=0)
    with pytest.raises(SettingsError, match="must be one of depth, scales"):
        sl.Monitor(network(), samples(), quantities=("depht",))
    with pytest.raises(SettingsError, match="each of them once"):
        sl.Monitor(network(), samples(), quantities=("depth", "depth"))
    with pytest.raises(SettingsError, match="shares between 0 and 1"):
        sl.Monitor(network(), samples(), levels=(2.0,))
    with pytest.raises(TypeError, match="evry"):
        sl.Monitor(network(), samples(), evry=3)
    with pytest.raises(InvalidInputError, match=r"torch\.nn\.Module instance was wanted"):
        sl.Monitor("model", samples())
