"""Changes of a network's parts: shortcuts, scalars, norms, activations, standardised inputs, a softmax that is undone.

Each returns a copy. What is added hangs on the modules as forward hooks and child modules, so that the network's own
code and the names of its parameters stay as they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from skiplens.base.errors import InvalidInputError, did_you_mean
from skiplens.base.preserve_state import rate_without
from skiplens.graph.inputs import copy_of
from skiplens.zoo.weight_laws import WeightLayer, is_weight_layer, weights_of

NORM, SCALE = "added_norm", "added_scale"
ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "identity": nn.Identity,
}
NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_DROPOUTS = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout
_RATES: dict[type[nn.Module], str] = dict.fromkeys(_DROPOUTS, "p")
_RATES |= dict.fromkeys((nn.RNN, nn.LSTM, nn.GRU, nn.MultiheadAttention), "dropout")
SATURATING = (nn.Sigmoid, nn.Tanh, nn.Hardsigmoid, nn.Hardtanh, nn.Softsign, nn.LogSigmoid)


@dataclass(eq=False)
class AddedShortcut:
    """Both ends of a shortcut: a hook that keeps a module's input, and one that adds it to a later module's output."""

    place: int | None = None  # which output of the later module it is added to, where that gives several
    held: Tensor | None = field(default=None, repr=False)

    def keep(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Before the first module of the branch."""
        self.held = arguments[0]

    def add(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
        """After its last module."""
        kept, self.held = self.held, None
        if kept is None or isinstance(output, Tensor):
            return output if kept is None else output + fitted(kept, output.shape)
        if self.place is None:
            kind, count = type(module).__name__, len(output)
            raise InvalidInputError(f"A {kind} gives {count} tensors; end its span with the number of one, from 0.")
        parts = [part + kept if place == self.place else part for place, part in enumerate(output)]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)

    def __deepcopy__(self, memo: dict[int, Any]) -> "AddedShortcut":
        """A copy holds nothing of a call that goes on."""
        return memo.setdefault(id(self), AddedShortcut(self.place))


def fitted(signal: Tensor, shape: Sequence[int]) -> Tensor:
    """The signal in another shape: an average pool of images; features and channels are cut off or padded with zeros.

    Tables (samples, features) and images (samples, channels, height, width) can be fitted; equal shapes need nothing.
    """
    if signal.shape == tuple(shape):
        return signal
    if signal.ndim not in (2, 4) or len(shape) != signal.ndim or signal.shape[0] != shape[0]:
        given, wanted = tuple(signal.shape), tuple(shape)
        raise InvalidInputError(f"No shortcut leads from shape {given} to {wanted}; wanted one shape, or two images.")
    pooled = F.adaptive_avg_pool2d(signal, (shape[2], shape[3])) if signal.ndim == 4 else signal
    return F.pad(pooled, (0, 0) * (signal.ndim - 2) + (0, shape[1] - signal.shape[1]))


def add_shortcuts(model: nn.Module, spans: Iterable[Sequence[Any]], zeros: Iterable[str] = ()) -> nn.Module:
    """A copy of `model` with shortcuts over some of its parts: identities, or average pools where the shape changes.

    Args:
        model: Any module.
        spans: For each shortcut the first and the last module of what it passes by. Where input and output differ in
            shape they are images or tables, see `fitted`.
            Where the last gives several tensors, the number of the one that is added to comes third.
        zeros: Parameters that start at zero, as the last layers of the new branches: the copy then starts as the
            shortcuts alone. Where a norm was added after such a layer its scale starts at zero instead.
    """
    fresh = copy_of(model)
    for first, last, *place in spans:
        shortcut = AddedShortcut(*place)
        _module(fresh, first).register_forward_pre_hook(shortcut.keep)
        _module(fresh, last).register_forward_hook(shortcut.add)
    with torch.no_grad():
        for name in zeros:
            added = getattr(_module(fresh, name.rpartition(".")[0]), NORM, None)
            (fresh.get_parameter(name) if added is None else added.weight).zero_()
    return fresh


class AddedScale(nn.Module):
    """A number to be learned."""

    def __init__(self, start: float, like: Tensor) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((), start, dtype=like.dtype, device=like.device))

    def forward(self, x: Tensor) -> Tensor:
        """That many times x."""
        return self.scale * x


def add_scales(model: nn.Module, modules: Iterable[str], start: float = 0.0) -> nn.Module:
    """A copy of `model` in which a learned number multiplies what some of its modules give (SkipInit, ReZero).

    Args:
        model: Any module.
        modules: Names of modules that give one tensor, such as the last layers of branches.
        start: The number to begin with; with zero a residual network starts as its shortcuts.
    """
    fresh = copy_of(model)
    for name in modules:
        module = _module(fresh, name)
        module.add_module(SCALE, AddedScale(start, next(fresh.parameters())))
        module.register_forward_hook(_rescaled)
    return fresh


def _rescaled(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    return module.get_submodule(SCALE)(output)


def add_norms(model: nn.Module, layers: Iterable[str], kind: str = "layer") -> nn.Module:
    """A copy of `model` in which a norm follows some of its linear or convolution layers.

    Args:
        model: Any module.
        layers: Names of linear and convolution layers.
        kind: ``"layer"`` normalises each sample over all units, at each place of a sequence by itself; ``"batch"``
            normalises each unit over the samples.
    """
    if kind not in ("layer", "batch"):
        raise InvalidInputError(f"The norm {kind!r} is none that can be added; wanted 'layer' or 'batch'.")
    fresh = copy_of(model)
    for name in layers:
        layer = _module(fresh, name)
        if not is_weight_layer(layer):
            given = type(layer).__name__
            raise InvalidInputError(f"{name!r} is a {given}; norms can follow linear layers and convolutions.")
        norm = _norm_for(layer, kind).to(layer.weight)
        layer.add_module(NORM, norm.train(layer.training))
        layer.register_forward_hook(_normalised)
    return fresh


class ChannelNorm(nn.LayerNorm):
    """Normalises over the channels of (samples, channels, places) at each place, so that no place sees another."""

    def forward(self, x: Tensor) -> Tensor:
        """Values of the same shape."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


def _norm_for(layer: WeightLayer, kind: str) -> nn.Module:
    width = weights_of(layer).shape[0]
    if kind == "layer":
        kinds: dict[int, type[nn.Module]] = {2: nn.LayerNorm, 3: ChannelNorm}
        return kinds[layer.weight.ndim](width) if layer.weight.ndim in kinds else nn.GroupNorm(1, width)
    return {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[layer.weight.ndim](width)


def _normalised(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    return module.get_submodule(NORM)(output)


def norms_first(model: nn.Module, modules: Iterable[str]) -> nn.Module:
    """A copy of `model` whose transformer layers normalise before attention and before the linear layers, not after.

    A stack of them then gets a norm at its end where it has none.

    Args:
        model: Any module.
        modules: Names of `nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer` modules.
    """
    fresh, norms = copy_of(model), dict[str, nn.LayerNorm]()
    for name in modules:
        layer = _module(fresh, name)
        if not isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            kind = type(layer).__name__
            raise InvalidInputError(f"{name!r} is a {kind}; norms move in transformer layers of torch.nn only.")
        layer.norm_first, norms[name] = True, layer.norm1
    for name, stack in fresh.named_modules():
        inside = [norm for place, norm in norms.items() if place.startswith(f"{name}." if name else "")]
        if isinstance(stack, nn.TransformerEncoder | nn.TransformerDecoder) and stack.norm is None and inside:
            stack.norm = nn.LayerNorm(inside[0].normalized_shape).to(inside[0].weight)
    return fresh


def remove_norms(model: nn.Module, modules: Iterable[str]) -> nn.Module:
    """A copy of `model` in which some norms do not normalise any more; they still scale and shift.

    Args:
        model: Any module.
        modules: Names of batch, layer, group, instance or RMS norms.
    """
    fresh = copy_of(model)
    for name in modules:
        _norm(fresh, name).register_forward_hook(_scaled_and_shifted)
    return fresh


def _scaled_and_shifted(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    x, weight, bias = arguments[0], getattr(module, "weight", None), getattr(module, "bias", None)
    last = isinstance(module, nn.LayerNorm | nn.RMSNorm)  # they scale along the last axes, the others along channels

    def along(values: Tensor) -> Tensor:
        return values if last else values.view(-1, *[1] * (x.ndim - 2))

    scaled = x if weight is None else x * along(weight)
    return scaled if bias is None else scaled + along(bias)


@dataclass(eq=False)
class MovedNorm:
    """A hook that normalises what a module is given, wherever the norm itself stood before."""

    norm: nn.Module

    def __call__(
        self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Change the arguments of a call that are the first one: attention gets it three times."""
        given = arguments[0] if arguments else next(iter(named.values()))
        normed = self.norm.forward(given)
        named = {name: normed if value is given else value for name, value in named.items()}
        return tuple(normed if value is given else value for value in arguments), named


def move_norms(model: nn.Module, moves: Mapping[str, Sequence[str]]) -> nn.Module:
    """A copy of `model` in which some norms stand in front of other modules, with the parameters that they have.

    Args:
        model: Any module.
        moves: For each norm the modules that it shall normalise the input of; where it stood nothing is changed any
            more. From after the sum of a residual block to the beginning of the next branch makes a post-norm network
            one with norms first.
    """
    fresh = copy_of(model)
    for name, behind in moves.items():
        norm = _norm(fresh, name)
        norm.register_forward_hook(_untouched)
        for place in behind:
            _module(fresh, place).register_forward_pre_hook(MovedNorm(norm), with_kwargs=True)
    return fresh


def _untouched(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    return arguments[0]


def _norm(model: nn.Module, name: str) -> nn.Module:
    norm = _module(model, name)
    if not isinstance(norm, NORMS):
        kind = type(norm).__name__
        raise InvalidInputError(f"{name!r} is a {kind}; wanted a batch, layer, group, instance or RMS norm.")
    return norm


def replace_activations(model: nn.Module, modules: Iterable[str], by: str = "relu") -> nn.Module:
    """A copy of `model` with other activation functions in some places.

    Args:
        model: Any module.
        modules: Names of the activations, which must be modules.
        by: ``"relu"``, ``"gelu"``, ``"silu"``, ``"tanh"``, or ``"identity"`` for none.
    """
    if by not in ACTIVATIONS:
        raise InvalidInputError(f"There is no activation {by!r}. {did_you_mean(by, ACTIVATIONS)}")
    fresh = copy_of(model)
    for name in modules:
        old = _module(fresh, name)
        parent, _, child = name.rpartition(".")
        setattr(_module(fresh, parent), child, ACTIVATIONS[by]().train(old.training))
    return fresh


@dataclass(frozen=True, eq=False)
class Standardisation:
    """A hook that gives a model (x − mean) / std instead of x, its first floating input."""

    mean: Tensor
    std: Tensor

    def __call__(
        self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Change the arguments of a call."""
        given: dict[Any, Any] = {**dict(enumerate(arguments)), **named}
        floating = (key for key, value in given.items() if isinstance(value, Tensor) and value.is_floating_point())
        first = next(floating, None)
        if first is not None:
            given[first] = self.changed(given[first])
        return tuple(given[place] for place in range(len(arguments))), {name: given[name] for name in named}

    def changed(self, inputs: Tensor) -> Tensor:
        """Inputs of mean zero and variance one."""
        shape = (-1, *[1] * (inputs.ndim - 2)) if inputs.ndim > 2 else (-1,)  # of channels, or of features
        return (inputs - self.mean.to(inputs).view(shape)) / self.std.to(inputs).view(shape)


def standardise_inputs(model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """A copy of `model` that standardises its first floating input itself.

    Args:
        model: Any module.
        mean: One number for all, or one for each channel (of images and signals) or feature (of tables).
        std: As many.
    """
    if len(mean) != len(std) or not all(value > 0 for value in std):
        raise InvalidInputError(f"mean has {len(mean)} numbers and std {len(std)}; wanted as many, with std above 0.")
    fresh = copy_of(model)
    numbers = (torch.tensor(values, dtype=torch.float64) for values in (mean, std))
    fresh.register_forward_pre_hook(Standardisation(*numbers), with_kwargs=True)
    return fresh


def undo_softmax(model: nn.Module) -> nn.Module:
    """A copy of `model` that gives the logarithms of its probabilities, as good as scores for a cross-entropy."""
    fresh = copy_of(model)
    fresh.register_forward_hook(_logarithms)
    return fresh


def drop_rates(model: nn.Module) -> dict[str, float]:
    """The share of its values that each dropout drops in training, also those inside attention and recurrent layers."""
    modules = {name: module for name, module in model.named_modules() if type(module) in _RATES}
    rates = {name: getattr(own, _RATES[type(own)]) or rate_without(own) for name, own in modules.items()}
    return {name: float(rate) for name, rate in rates.items() if rate > 0}


def set_drop_rates(model: nn.Module, rates: Mapping[str, float]) -> nn.Module:
    """A copy of `model` whose dropouts drop other shares; in evaluation mode it computes the same.

    Args:
        model: Any module.
        rates: The shares by the names of the modules.
    """
    fresh = copy_of(model)
    for name, rate in rates.items():
        module = _module(fresh, name)
        if type(module) not in _RATES or not 0 <= rate < 1:
            raise InvalidInputError(
                f"{name!r} cannot drop a share of {rate:g}: name a dropout and a number from 0 to 1."
            )
        setattr(module, _RATES[type(module)], rate)
    return fresh


def _logarithms(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    return output.clamp_min(torch.finfo(output.dtype).tiny).log()


def _module(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError:
        names = [place for place, _ in model.named_modules()]
        raise InvalidInputError(f"The network has no module {name!r}. {did_you_mean(name, names)}") from None
