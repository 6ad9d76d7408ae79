import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.report.during_training.probed_model import Probe
from tests.networks import noise


def test_a_pair_is_inputs_and_targets():
    probe = Probe.of((noise(6, 4), torch.arange(6)), None, 4)
    assert probe.samples == 4 and probe.targets.tolist() == [0, 1, 2, 3] and not probe.model_has_loss


def test_labels_of_a_mapping_are_targets_and_the_model_knows_the_loss():
    probe = Probe.of({"x": noise(6, 4), "labels": torch.arange(6)}, None, 4)
    assert list(probe.inputs) == ["x"] and probe.targets.tolist() == [0, 1, 2, 3] and probe.model_has_loss
    loss, data = probe.loss_and_data(noise(4, 6))
    assert loss is None and data.samples == 4
    assert not Probe.of({"x": noise(6, 4), "labels": torch.arange(6)}, "cross_entropy", 4).model_has_loss


@pytest.mark.parametrize("inputs", [noise(6, 4), {"x": noise(6, 4)}])
def test_inputs_alone_have_no_curvature(inputs):
    probe = Probe.of(inputs, None, 4)
    assert probe.samples == 4 and probe.targets is None
    with pytest.raises(InvalidInputError, match=r"inputs only.*Hand over \(inputs, targets\)"):
        probe.loss_and_data(noise(4, 3))


def test_the_loss_is_the_one_that_fits_or_the_one_asked_for():
    classes = Probe.of((noise(6, 4), torch.arange(6) % 3), None, 6)
    assert classes.loss_and_data(noise(6, 3))[0] == "cross_entropy"
    assert Probe.of((noise(6, 4), noise(6, 3)), None, 6).loss_and_data(noise(6, 3))[0] == "mse"
    assert Probe.of((noise(6, 4), noise(6, 3)), "mine", 6).loss_and_data(noise(6, 3))[0] == "mine"


def test_bad_probes():
    with pytest.raises(InvalidInputError, match="probe is of type int"):
        Probe.of(3, None, 4)
    with pytest.raises(InvalidInputError, match="probe has 6 inputs but 5 targets"):
        Probe.of((noise(6, 4), torch.arange(5)), None, 4)
    with pytest.raises(InvalidInputError, match="inputs of probe are of type dict"):
        Probe.of({"flag": True}, None, 4)
