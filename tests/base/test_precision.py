import pytest
import torch

from skiplens.base.preserve_state import full_precision, preserve_state


def test_the_users_choice_comes_back_also_after_an_error(monkeypatch):
    """The switches exist without a GPU; only the question whether there is one is answered for the test."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = (torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision())
    with pytest.raises(ZeroDivisionError), full_precision():
        assert (torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()) == (False, "highest")
        raise ZeroDivisionError
    assert (torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()) == before


@pytest.mark.gpu
def test_a_measurement_on_a_gpu_keeps_all_bits():
    generator = torch.Generator().manual_seed(0)
    layer = torch.nn.Conv2d(64, 64, 3, dtype=torch.float32)
    inputs = torch.randn(8, 64, 16, 16, generator=generator, dtype=torch.float32)
    exact = layer.double()(inputs.double())
    layer = layer.float().cuda()
    with preserve_state(layer), torch.no_grad():
        measured = layer(inputs.cuda()).cpu().double()
    assert (measured - exact).abs().max() / exact.abs().max() < 1e-5
