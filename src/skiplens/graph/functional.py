"""A model as a pure function of its parameters, and which of its outputs are looked at."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from skiplens.base import Float, InvalidInputError, SkiplensError, pick, refuse_if
from skiplens.base.preserve_state import SelfChangeError, preserve_state
from skiplens.graph.batch import tensors_in
from skiplens.graph.inputs import Inputs, Samples, require_device, require_finite, require_module, samples_of
from skiplens.graph.operations import hard_sigmoid, step_by_step

ParameterChoice = Iterable[str] | Callable[[str], bool] | None
"""Names of parameters, a test on names, or None for all that require a gradient."""

Parameters = Mapping[str, Tensor]
_ASSIGN_DATA = Tensor.data.__set__  # type: ignore[attr-defined]  # the type of a property of C


@dataclass(frozen=True)
class PureModel:
    """A model as a function (parameters, samples) -> outputs, with the parameters that derivatives are taken of.

    A parameter that stands in several places (tied weights) is in `parameters` once; `aliases` maps the name of each
    place, also those of the parameters that are not chosen, to the first name and the value. A module that stands in
    several places (shared layers) has one name: that of the first.
    """

    model: nn.Module
    parameters: dict[str, Tensor]
    aliases: dict[str, tuple[str, Tensor]]

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return next(iter(self.parameters.values())).device

    @property
    def dtype(self) -> torch.dtype:
        """The type that holds all chosen parameters, at least float32."""
        return reduce(torch.promote_types, (tensor.dtype for tensor in self.parameters.values()), torch.float32)

    @property
    def parameter_count(self) -> int:
        """How many numbers the chosen parameters hold."""
        return sum(tensor.numel() for tensor in self.parameters.values())

    def leaves(self, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """Fresh leaves of the autograd graph that share the chosen parameters' memory."""
        names = self.parameters if names is None else names
        return {name: self.parameters[name].detach().requires_grad_() for name in names}

    def call(self, parameters: Parameters, samples: Samples) -> Any:
        """Whatever the model returns with `parameters` in place of its own; all others give no gradient."""
        replaced = {alias: parameters.get(name, value) for alias, (name, value) in self.aliases.items()}
        args, kwargs = tree_map_only(Tensor, Tensor.clone, (samples.args, samples.kwargs))  # a model may write to them
        return call_with(self.model, replaced, args, kwargs)

    def __call__(self, parameters: Parameters, samples: Samples) -> Float[Tensor, "samples outputs"]:
        """The main output with all axes after the samples joined."""
        return flat_outputs(self.call(parameters, samples), samples.count)


def pure_model(model: nn.Module, parameters: ParameterChoice = None) -> PureModel:
    """`model` as a pure function of its chosen parameters, refused where it has none or they are spread out."""
    require_module(model)
    chosen = _choose(dict(model.named_parameters()), parameters)
    devices = sorted({str(p.device) for p in model.parameters()})
    refuse_if(len(devices) > 1, f"The model's parameters are on {' and '.join(devices)}; move the model to one device.")
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    every = places(model, "_parameters")
    aliases = {alias: (first[id(parameter)], parameter.detach()) for alias, parameter in every.items()}
    return PureModel(model, {name: tensor.detach() for name, tensor in chosen.items()}, aliases)


def places(model: nn.Module, table: str) -> dict[str, Tensor]:
    """The tensors in ``"_parameters"`` or ``"_buffers"`` of each module, by one name for each place.

    A tied parameter has several places. A shared module has several names and one place, which must be filled once:
    filled twice, what was put there first would be taken for its own.
    """
    modules = model.named_modules()
    entries = ((f"{path}.{name}" if path else name, t) for path, m in modules for name, t in getattr(m, table).items())
    return {name: tensor for name, tensor in entries if tensor is not None}


def call_with(
    model: nn.Module, replaced: Parameters, args: tuple[Any, ...], kwargs: dict[str, Any], tied: bool = False
) -> Any:
    """What `model` returns with other tensors in its places, or `tied` ones; refused where it changes them."""
    fused = any(isinstance(module, nn.LSTM) for module in model.modules())
    with _NoAssignment(), keeps_gradients(replaced), step_by_step() if fused else nullcontext():
        return functional_call(model, dict(replaced), args, kwargs, tie_weights=tied)


@contextmanager
def keeps_gradients(parameters: Parameters) -> Iterator[None]:
    """Run a call of a model, and refuse one after which a parameter no longer requires its gradient."""
    moving = {name: tensor for name, tensor in parameters.items() if tensor.requires_grad}
    yield
    frozen = [name for name, tensor in moving.items() if not tensor.requires_grad]
    if frozen:
        raise SelfChangeError(f"{', '.join(frozen[:5])} no longer requires a gradient after the call")


class _NoAssignment(TorchFunctionMode):
    """Refuse `tensor.data = …`, which under a transform of torch.func ends the process, unless nothing changes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The call as it is, unless it assigns."""
        if func != _ASSIGN_DATA:
            return func(*args, **(kwargs or {}))
        try:
            same = torch.equal(args[0].detach(), args[1].detach())
        except RuntimeError:  # several values at once, of which a transform does not let us ask
            same = False
        if not same:
            raise SelfChangeError(f"the data of a {tuple(args[0].shape)} tensor is assigned")


def output_shape(pure: PureModel, samples: Samples) -> tuple[int, ...]:
    """Shape of one sample's output, after checking that inputs, model and outputs fit together and repeat.

    Raises:
        InvalidInputError: Inputs or outputs are not finite, on another device, or the model refuses the inputs.
        SkiplensError: Two calls with the same inputs give different outputs.
    """
    require_device(samples, pure.device)
    require_finite(samples)
    few = samples.take(slice(0, 2))
    with torch.no_grad():
        first, second = _try_call(pure, few), _try_call(pure, few)
    flat = flat_outputs(first, few.count)
    if not bool(torch.isfinite(flat).all()):
        raise InvalidInputError(
            "The model's outputs are NaN or infinite for finite inputs; look for parameters that are not finite or for "
            "numbers that overflow."
        )
    if not same_up_to_rounding(flat, flat_outputs(second, few.count)):
        raise SkiplensError(
            f"Two calls of the model with the same inputs give different outputs: {why_restless(pure.model)}"
        )
    return tuple(main_output(first).shape[1:])


STILL = (
    "Call model.eval() first, or set the dropout probability to 0; what it draws in evaluation mode too, hand over as "
    "an input."
)


def why_restless(model: nn.Module) -> str:
    """Why two calls of a model differ, and what to do."""
    layers = {type(module).__name__ for module in model.modules() if module.training}
    drawing = " and ".join(sorted(name for name in layers if "drop" in name.lower()))
    reason = f"{drawing} in training mode draws anew" if drawing else "its forward pass draws or counts"
    return f"{reason} at each call. {STILL}"


def is_batch_coupled(model: nn.Module | PureModel, inputs: Inputs | Samples) -> bool:
    """Whether a sample's output depends on the other samples of the batch (batch norm in training mode does so)."""
    pure = model if isinstance(model, PureModel) else pure_model(model)
    norms = (module for module in pure.model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm))
    if any(norm.training or norm.running_mean is None for norm in norms):
        return True
    few = samples_of(inputs).take(slice(0, 4))
    if few.count == 1:
        return False
    with torch.no_grad(), preserve_state(pure.model):
        together = pure(pure.parameters, few)
        for place in (0, few.count - 1):  # what runs over samples as if they were times gives the first its own answer
            alone = pure(pure.parameters, few.take([place] * few.count))
            if not same_up_to_rounding(together[place], alone[place]):
                return True
    return False


@contextmanager
def transformable() -> Iterator[None]:
    """Attention and hard sigmoid by plain formulas, the form that forward mode, vmap and second derivatives accept.

    What torch remarks about its own inner workings under these transforms is not shown: nobody can act on it.
    """
    plain = mock.patch.object(nn.functional, "hardsigmoid", hard_sigmoid)
    with sdpa_kernel(SDPBackend.MATH), plain, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.script.* is deprecated", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*not yet implemented the batching rule", category=UserWarning)
        yield


def _choose(available: dict[str, nn.Parameter], choice: ParameterChoice) -> dict[str, nn.Parameter]:
    if choice is None:
        names = [name for name, p in available.items() if p.requires_grad]
    else:
        names = list(filter(choice, available) if callable(choice) else choice)
    found = {name: pick(available, name, f"The model has no parameter {name!r}.") for name in names}
    chosen = {name: parameter for name, parameter in found.items() if parameter.numel() > 0}
    if not chosen:
        raise InvalidInputError(
            f"None of the model's {len(available)} parameters is chosen, so there is nothing to differentiate; hand "
            "over a model with parameters that require a gradient, or name them with parameters=…."
        )
    for name, p in chosen.items():
        if not p.is_floating_point():
            raise InvalidInputError(
                f"The parameter {name!r} is of type {p.dtype}; only real ones can be chosen. A complex one can be kept "
                "as torch.view_as_real(…), and made of that in the forward pass."
            )
    return chosen


def _try_call(pure: PureModel, samples: Samples) -> Any:
    try:
        return pure.call(pure.parameters, samples)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, SkiplensError):
            raise
        shapes = ", ".join(f"{name}: {tuple(t.shape)} {t.dtype}" for name, t in samples.tensors().items())
        raise InvalidInputError(f"The model cannot be called with these inputs ({shapes}): {error}") from error


def same_up_to_rounding(left: Tensor, right: Tensor, scale: Tensor | None = None) -> bool:
    """Whether two tensors agree to half the digits of their dtype, relative to the larger of left and `scale`."""
    size = left.abs().max() if scale is None else torch.maximum(left.abs().max(), scale)
    return bool((left - right).abs().max() <= torch.finfo(left.dtype).eps ** 0.5 * size)


def saved_bytes_per_sample(pure: PureModel, samples: Samples) -> int:
    """Bytes that autograd keeps of each sample between forward and backward pass, measured on a few samples."""
    few = samples.take(slice(0, 2))
    own = [value for _, value in pure.aliases.values()]
    return sum(saved_tensors(lambda: pure(pure.leaves(), few), own)) // few.count + 1


def saved_tensors(call: Callable[[], Any], own: Iterable[Tensor]) -> list[int]:
    """Bytes of each tensor that autograd keeps of a call for a backward pass, but for those of its `own`."""
    known = {value.data_ptr() for value in own if value.layout is torch.strided}
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout is torch.strided and tensor.data_ptr() not in known:
            sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor.detach()  # else an operation that keeps its own result would keep itself for ever

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = call()
    del outputs
    return list(sizes.values())


OutputChoice = str | int | tuple[int, ...]
"""``"trace"``, ``"full"``, or the index of one output (a tuple for outputs with several axes)."""


def nodes_behind(tensors: Iterable[Tensor], seen: set[Any] | None = None) -> Iterator[Any]:
    """Every node of the autograd graph that the tensors come from, but those in `seen`, which grows."""
    seen = set() if seen is None else seen
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [parent for parent, _ in node.next_functions]
            yield node


@dataclass(frozen=True)
class OutputSelection:
    """The flat outputs that are looked at, and whether each keeps its own axis in the result."""

    indices: tuple[int, ...]
    separate: bool

    @property
    def count(self) -> int:
        """How many outputs are looked at."""
        return len(self.indices)

    def runs(self, size: int) -> list[tuple[int, ...]]:
        """The outputs in consecutive runs of at most `size`."""
        return [self.indices[start : start + size] for start in range(0, self.count, size)]


def main_output(output: Any) -> Tensor:
    """The tensor a model is about: itself, its logits, or the first floating tensor of a tuple, mapping or dataclass.

    A single number among several tensors is a loss beside the outputs.
    """
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        return output["logits"]
    floating = [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]
    if floating:
        return next((tensor for tensor in floating if tensor.ndim), floating[0])
    raise InvalidInputError(
        f"The model returned {type(output).__name__}, in which there is no floating-point tensor; "
        "wrap the model so that it returns the tensor to look at."
    )


def flat_outputs(output: Any, samples: int) -> Float[Tensor, "samples outputs"]:
    """The main output with all axes after the samples joined to one."""
    tensor = main_output(output)
    if tensor.ndim == 0 or tensor.shape[0] != samples:
        raise InvalidInputError(
            f"The model returned a tensor of shape {tuple(tensor.shape)} for {samples} samples; its first axis must be "
            "the samples. Wrap the model if it returns a loss or another order of axes."
        )
    return tensor.reshape(samples, -1)


def select_outputs(choice: OutputChoice, shape: tuple[int, ...]) -> OutputSelection:
    """The selection that `choice` means for outputs of `shape` (without the samples)."""
    total = math.prod(shape)
    if isinstance(choice, str):
        if choice not in ("trace", "full"):
            raise InvalidInputError(f"outputs={choice!r}; use 'trace', 'full' or the index of one output.")
        return OutputSelection(tuple(range(total)), separate=choice == "full")
    index = (choice,) if isinstance(choice, int) else tuple(choice)
    sizes = (total,) if len(index) == 1 else shape
    if len(index) != len(sizes) or not all(-size <= i < size for i, size in zip(index, sizes, strict=True)):
        shown = index[0] if len(index) == 1 else index
        raise InvalidInputError(
            f"outputs={shown} is not an output of the model: one sample's outputs have shape {shape}."
        )
    flat = 0
    for i, size in zip(index, sizes, strict=True):
        flat = flat * size + i % size
    return OutputSelection((flat,), separate=False)
