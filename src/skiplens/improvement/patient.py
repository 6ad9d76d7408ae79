"""A network that is to be improved, with all that its changes are read from."""

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from skiplens.base.errors import SkiplensError
from skiplens.base.preserve_state import preserve_state
from skiplens.base.randomness import Randomness
from skiplens.graph import Batch, ResidualBlock, ResidualNetwork, dissect
from skiplens.graph.batch import tensors_in
from skiplens.graph.inputs import first_line
from skiplens.graph.lens import Subject
from skiplens.graph.loss import Loss
from skiplens.signal import SignalLens
from skiplens.signal.layers import LayerStates, layer_states
from skiplens.task import TaskReading, measure_task
from skiplens.trainability.optimizers import OptimizerChoice
from skiplens.zoo.weight_laws import is_weight_layer

SHARED = 32  # samples on which branches are compared with their shortcuts


class LayerCall(NamedTuple):
    """A module without children that was called."""

    name: str
    module: nn.Module
    before: tuple[int, ...]
    after: tuple[int, ...]
    place: tuple[int, ...] = ()  # where it gives several tensors: which of them the next block takes
    end: str = ""  # and the weight layer inside that gave it


@dataclass(frozen=True)
class Patient:
    """A network with all that its changes are read from."""

    model: nn.Module
    batch: Batch
    loss: Loss
    steps: int
    choice: OptimizerChoice

    @property
    def scheduled(self) -> bool:
        """Whether the optimizer comes with a schedule of its own."""
        return isinstance(self.choice.factory([nn.Parameter(torch.zeros(1))]), tuple)

    @cached_property
    def states(self) -> LayerStates:
        """Signal and gradient at each layer."""
        return layer_states(self.model, self.batch, self.loss)

    @cached_property
    def task(self) -> TaskReading:
        """Inputs, targets, and the loss at the start."""
        return measure_task(self.model, self.batch, self.loss)

    @cached_property
    def _dissected(self) -> tuple[ResidualNetwork | None, str]:
        try:
            return dissect(self.model, self.batch.first(2).inputs), ""
        except SkiplensError as error:
            return None, first_line(error)

    @property
    def network(self) -> ResidualNetwork | None:
        """The model taken apart; None where that cannot be done, see `refused`."""
        return self._dissected[0]

    @property
    def refused(self) -> str:
        """Why the model could not be taken apart."""
        return self._dissected[1]

    @cached_property
    def blocks(self) -> list[ResidualBlock]:
        """The outermost residual blocks; none where the model cannot be taken apart."""
        return [block for block in self.network.blocks if block.parent is None] if self.network else []

    @cached_property
    def shares(self) -> dict[str, float]:
        """Of each residual block the size of what its branch adds, over that of what its shortcut brings."""
        subject = Subject(self.model, self.batch.first(SHARED), "", loss=self.loss)
        found = SignalLens()(subject, Randomness(0))
        ratios = (found.branch_norms / found.shortcut_norms).tolist()
        return dict(zip(found.block_names, ratios, strict=True))

    @cached_property
    def calls(self) -> list[LayerCall]:
        """The calls of modules without children that take and give one tensor, in order."""
        return [call for call in self.all_calls if not any(True for _ in call.module.children())]

    @cached_property
    def all_calls(self) -> list[LayerCall]:
        """The calls of all modules that take and give one tensor, in the order in which they end.

        Also those that give several, one of them from a layer inside, which goes into the next module of their class.
        """
        found, layers = list[LayerCall | None](), list[tuple[str, Tensor]]()
        waiting: list[tuple[int, Tensor, LayerCall]] = []

        def note(name: str, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            if not given or not isinstance(given[0], Tensor):
                return
            shape, parts = tuple(given[0].shape), output if isinstance(output, tuple | list) else ()
            for number, part, fork in waiting:
                if part is given[0] and type(module) is type(fork.module):
                    found[number] = found[number] or fork
            for (place, part), (layer, made) in product(enumerate(parts), layers):
                if part is made and made.shape == shape and layer.startswith(f"{name}."):
                    waiting.append((len(found), part, LayerCall(name, module, shape, shape, (place,), layer)))
            found.append(LayerCall(name, module, shape, tuple(output.shape)) if isinstance(output, Tensor) else None)
            if is_weight_layer(module):
                layers.append((name, output))

        with preserve_state(self.model), torch.no_grad():
            for name, module in self.model.named_modules():  # `preserve_state` takes the hooks away
                module.register_forward_hook(partial(note, name))
            self.batch.first(2).arguments().call(self.model)
        return [call for call in found if call is not None]

    def around(self, layer: LayerCall) -> LayerCall | None:
        """The smallest module around a weight layer, or one that gives several tensors, that keeps the shape."""
        called, parts = {call.name: call for call in self.all_calls}, layer.name.split(".")
        names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        equal = [called[name] for name in names if name in called and called[name].before == called[name].after]
        return next((call for call in equal if call.end), next(iter(equal), None))

    @cached_property
    def shared(self) -> list[str]:
        """The linear and convolution layers whose weights are used in several places."""
        layers = [(call, call.module) for call in self.calls if is_weight_layer(call.module)]
        held = [module.weight for _, module in layers]  # kept, so that no two have one address by chance
        names, places = [call.name for call, _ in layers], [id(weight) for weight in held]
        pairs = zip(names, places, strict=True)
        return list(dict.fromkeys(name for name, at in pairs if names.count(name) > 1 or places.count(at) > 1))

    @cached_property
    def weights(self) -> list[LayerCall]:
        """The linear and convolution layers whose weights are used once, in order."""
        return [call for call in self.calls if is_weight_layer(call.module) and call.name not in self.shared]


def has_numbers(model: nn.Module, batch: Batch) -> bool:
    """Whether weights are finite and no input is NaN (masks may be infinite): no change of a network mends others."""
    weights, inputs = (list(tensors) for tensors in (model.parameters(), tensors_in(batch.inputs)))
    return all(bool(w.isfinite().all()) for w in weights) and not any(bool(x.isnan().any()) for x in inputs)


def quantised_layers(model: nn.Module) -> tuple[str, ...]:
    """Names of the layers whose weights are whole numbers, which no training moves."""
    modules = [(name, module) for name, module in model.named_modules() if "quantized" in type(module).__module__]
    return tuple(name for name, module in modules if callable(getattr(module, "weight", None)))
