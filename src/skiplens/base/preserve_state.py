"""Looking never changes the model: everything a measurement might disturb is put back, also after an error."""

import operator
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils import checkpoint

from skiplens.base.errors import InvalidInputError

CHANGES_ITSELF = (
    "The model changes its own parameters when it is called: {names}. Skiplens measures a model without changing it; "
    "move the change out of the forward pass, behind the optimizer's step or into torch.nn.utils.parametrize."
)


class SelfChangeError(InvalidInputError):
    """A model changes its own parameters when it is called."""

    def __init__(self, names: str) -> None:
        super().__init__(CHANGES_ITSELF.format(names=names))


_COPIED: ContextVar[frozenset[int]] = ContextVar("_COPIED", default=frozenset())
"""Parameters of which a block further out holds a copy."""


@contextmanager
def preserve_state(model: nn.Module, written: bool = True) -> Iterator[nn.Module]:
    """Run a block that looks at `model`, then put back all that it holds and the random state, also after an error.

    Its modules have the same objects in the same places: parameters, buffers, gradients, flags, hooks, modes and plain
    attributes, each tensor with its values. What is measured inside is measured in full precision, also on a GPU (see
    `full_precision`). A block that changed a parameter ends in an error that names it. No copy of the parameters is
    made for a block in which none is `written`, such as one that only traces the model.
    """
    before = _Snapshot(model, _COPIED.get() if written else frozenset(map(id, model.parameters())))
    token = _COPIED.set(_COPIED.get() | {id(kept.tensor) for kept in before.tensors if kept.values is not None})
    failure: Exception | None = None
    try:
        with preserve_random_state(), full_precision():
            yield model
    except Exception as error:
        failure = error
    finally:
        _COPIED.reset(token)
        _to_the_end(before.restore)
    if before.changed:
        raise SelfChangeError(", ".join(sorted(before.changed)[:5])) from failure
    if failure is not None:
        raise failure


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Run a block, then put back the random states of torch, NumPy and Python."""
    ours, plain = torch.get_rng_state(), random.getstate()
    numbers = np.random.get_state()  # noqa: NPY002 - not ours to draw from, but ours to keep
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None

    def restore() -> None:
        torch.set_rng_state(ours)
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(plain)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)

    try:
        yield
    finally:
        _to_the_end(restore)


def _to_the_end(restore: Callable[[], None]) -> None:
    """Restore, and again from the start where a key is pressed meanwhile."""
    try:
        restore()
    except KeyboardInterrupt:
        restore()
        raise


class _Snapshot:
    def __init__(self, model: nn.Module, copied: frozenset[int]) -> None:
        modules = list(model.modules())
        inner = [value for module in modules for value in vars(module).values() if isinstance(value, dict | list | set)]
        self.tables = [(table, table.copy() if table else ()) for table in [*map(vars, modules), *inner]]
        self.model = model
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        held = [value for table, _ in self.tables if isinstance(table, dict) for value in table.values()]
        unique = {id(value): value for value in held if isinstance(value, Tensor) and not is_lazy(value)}
        self.tensors = [_Kept.of(tensor, key not in copied) for key, tensor in unique.items()]
        self.changed: set[str] = set()

    def restore(self) -> None:
        present = {id(parameter) for parameter in self.model.parameters()}
        self.changed |= {name for key, name in self.names.items() if key not in present}
        for table, before in self.tables:
            _refill(table, before)
        with torch.no_grad():
            for kept in self.tensors:
                if kept.restore() and id(kept.tensor) in self.names:
                    self.changed.add(self.names[id(kept.tensor)])


@dataclass(frozen=True)
class _Kept:
    """A tensor, a second name of its memory, its values, its flag and its gradient."""

    tensor: Tensor
    memory: Tensor
    version: int
    values: Tensor | None
    flag: bool
    gradient: "_Kept | None"

    @classmethod
    def of(cls, tensor: Tensor, with_values: bool) -> "_Kept":
        gradient = tensor.grad if tensor.is_leaf else None
        values = tensor.detach().clone() if with_values or not isinstance(tensor, nn.Parameter) else None
        inner = None if gradient is None else cls.of(gradient, with_values=True)
        return cls(tensor, tensor.detach(), _version(tensor), values, tensor.requires_grad, inner)

    def restore(self) -> bool:
        """Put back what differs; returns whether the values did."""
        if self.tensor.is_leaf:
            self.tensor.grad = None if self.gradient is None else self.gradient.tensor
            if self.gradient is not None:
                self.gradient.restore()
            if self.tensor.requires_grad != self.flag:
                self.tensor.requires_grad_(self.flag)
        moved = not _same_memory(self.tensor, self.memory)
        if self.values is None:  # a block further out has them
            written = _version(self.tensor) != self.version or (moved and not _identical(self.tensor, self.memory))
        else:
            written = moved and not _identical(self.tensor, self.values)
        if moved:
            self.tensor.data = self.memory
        if self.values is not None and not _identical(self.memory, self.values):
            self.memory.copy_(self.values)
            return True
        return written


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _refill(table: Any, before: Any) -> None:
    """The same entries in the same order, or for a set the same ones."""
    if not table and not before:  # as most are, those of hooks
        return
    if isinstance(table, dict):
        same = len(table) == len(before) and all(map(operator.is_, table.values(), before.values()))
        if not same or list(table) != list(before):
            table.clear()
            table.update(before)
    elif isinstance(table, list):
        if len(table) != len(before) or not all(map(operator.is_, table, before)):
            table[:] = before
    elif table != before:
        table.clear()
        table.update(before)


def _same_memory(left: Tensor, right: Tensor) -> bool:
    if left.layout is not torch.strided or left.shape != right.shape or left.stride() != right.stride():
        return left.layout is not torch.strided
    return left.device == right.device and left.dtype == right.dtype and left.data_ptr() == right.data_ptr()


def _identical(left: Tensor, right: Tensor) -> bool:
    """Bit for bit, so that a NaN equals itself; what has no data never differs."""
    if left.is_meta:
        return True
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.layout is not torch.strided:
        left, right = left.to_dense(), right.to_dense()
    return torch.equal(left, right) or bool(((left == right) | (left.isnan() & right.isnan())).all())


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with `count` threads, then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def full_precision() -> Iterator[None]:
    """Run a block in which float32 products keep all their bits; the user's choice comes back afterwards.

    By default cuDNN rounds the factors of a float32 convolution to TF32, which changes a tangent kernel by 2e-3.
    """
    if not torch.cuda.is_available():
        with without_autocast():
            yield
        return
    convolutions, products = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    try:
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        with without_autocast():
            yield
    finally:
        torch.backends.cudnn.allow_tf32 = convolutions
        torch.set_float32_matmul_precision(products)


@contextmanager
def without_autocast() -> Iterator[None]:
    """Run a block whose products are not rounded to 8 or 11 bits, unless a model itself switches that on."""
    with ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def checkpoints_off() -> Iterator[None]:
    """Run a block in which `torch.utils.checkpoint` keeps activations: torch cannot run every derivative through it."""

    class Kept:
        @staticmethod
        def apply(function: Callable[..., Any], _preserve: bool, *given: Any) -> Any:
            return function(*given)

    with (
        mock.patch.object(checkpoint, "CheckpointFunction", Kept),
        mock.patch.object(checkpoint, "_checkpoint_without_reentrant_generator", lambda *_, **__: iter([None])),
    ):
        yield


@contextmanager
def dropout_off(model: nn.Module) -> Iterator[tuple[str, ...]]:
    """Run a block in which dropout and stochastic depth draw nothing; gives the places where they would have.

    Modules of dropout go to evaluation mode, and rates that other modules keep under such a name are zero meanwhile.
    All other modules, batch norm among them, stay in their mode.
    """
    changes: list[tuple[nn.Module, str, Any]] = []
    places: list[str] = []
    for name, module in model.named_modules():
        if not module.training or isinstance(module, torch.jit.ScriptModule):
            continue
        rates = {key: rate for key, rate in vars(module).items() if _is_rate(key, rate)}
        kind = type(module).__name__.lower()
        drops = ("drop" in kind or kind == "stochasticdepth") and getattr(module, "p", 1.0) != 0
        if drops and "p" in vars(module):  # which the module around it may read, as attention does
            changes.append((module, "p", 0.0))
        draws = drops or "layerdrop" in vars(module)  # whether to leave out a layer is drawn also at the rate 0
        changes += [(module, key, 0.0) for key in rates] + [(module, "training", False)] * draws
        places += [name or type(module).__name__] * bool(rates or drops)
    before = [(module, key, getattr(module, key)) for module, key, _ in changes]
    rates_of = {module: value for module, key, value in before if key != "training"}
    try:
        _SWITCHED_OFF.update(rates_of)
        for module, key, value in changes:
            setattr(module, key, value)
        yield tuple(places)
    finally:
        for module, key, value in before:
            setattr(module, key, value)
            _SWITCHED_OFF.pop(module, None)


_SWITCHED_OFF: WeakKeyDictionary[nn.Module, float] = WeakKeyDictionary()


def rate_without(module: nn.Module) -> float:
    """The rate that a module drops at where no block of `dropout_off` has it switched off; zero outside of these."""
    return _SWITCHED_OFF.get(module, 0.0)


def _is_rate(name: str, value: Any) -> bool:
    return "drop" in name.lower() and isinstance(value, float) and 0 < value <= 1
