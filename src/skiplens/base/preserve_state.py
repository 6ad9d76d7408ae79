"""Looking never changes the model: everything a measurement might disturb is put back, also after an error."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from skiplens.base.errors import SkiplensError

_HOOK_TABLES = """
    _forward_hooks _forward_pre_hooks _forward_hooks_with_kwargs _forward_pre_hooks_with_kwargs
    _forward_hooks_always_called _backward_hooks _backward_pre_hooks _non_full_backward_hooks
    _state_dict_hooks _state_dict_pre_hooks _load_state_dict_pre_hooks _load_state_dict_post_hooks
""".split()


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[nn.Module]:
    """Run a block that looks at `model`, then put back buffers, mode, gradients, flags, hooks and random state.

    What is measured inside is measured in full precision, also on a GPU (see `full_precision`).

    Parameters are not copied (they may fill the memory): torch counts in-place changes, and a block that changed one
    ends in an error instead of a silently different model.
    """
    before = _Snapshot(model)
    try:
        with full_precision():
            yield model
    finally:
        before.restore(model)
    before.require_same_parameters(model)


class _Snapshot:
    def __init__(self, model: nn.Module) -> None:
        self.modes = [(module, module.training) for module in model.modules()]
        self.buffers = [
            (module, name, buffer, _copy(buffer))
            for module in model.modules()
            for name, buffer in module._buffers.items()
        ]
        self.gradients = [(p, p.grad, _copy(p.grad), p.requires_grad) for p in model.parameters()]
        self.versions = {name: (id(p), p._version) for name, p in model.named_parameters()}
        owned = (vars(module).get(name) for module in model.modules() for name in _HOOK_TABLES)
        self.hooks = [(table, dict(table)) for table in owned if table is not None]
        self.cpu_random_state = torch.get_rng_state()
        self.cuda_random_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None

    def restore(self, model: nn.Module) -> None:
        with torch.no_grad():
            for module, name, buffer, copy in self.buffers:
                module._buffers[name] = buffer
                if buffer is not None and copy is not None and not _identical(buffer, copy):
                    buffer.copy_(copy)
            for parameter, gradient, copy, flag in self.gradients:
                parameter.grad = gradient
                if gradient is not None and copy is not None and not _identical(gradient, copy):
                    gradient.copy_(copy)
                parameter.requires_grad_(flag)
        for module, mode in self.modes:
            module.training = mode
        for now, before in self.hooks:
            now.clear()
            now.update(before)
        torch.set_rng_state(self.cpu_random_state)
        if self.cuda_random_states is not None:
            torch.cuda.set_rng_state_all(self.cuda_random_states)

    def require_same_parameters(self, model: nn.Module) -> None:
        after = {name: (id(p), p._version) for name, p in model.named_parameters()}
        changed = sorted(name for name in {*after, *self.versions} if after.get(name) != self.versions.get(name))
        if changed:
            raise SkiplensError(
                f"The model changes its own parameters when it is called: {', '.join(changed[:5])}. "
                "Skiplens measures a model without changing it; inspect a copy whose forward pass has no side effects."
            )


def _copy(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone()


def _identical(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Bit for bit, so that a NaN equals itself."""
    return torch.equal(left, right) or bool(((left == right) | (left.isnan() & right.isnan())).all())


@contextmanager
def full_precision() -> Iterator[None]:
    """Run a block in which float32 products on a GPU keep all their bits; the user's choice comes back afterwards.

    By default cuDNN rounds the factors of a float32 convolution to TF32, which changes a tangent kernel by 2e-3.
    """
    if not torch.cuda.is_available():
        yield
        return
    convolutions, products = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    try:
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = convolutions
        torch.set_float32_matmul_precision(products)
