"""A model in training as a monitor sees it: in a fixed mode, on the probe, taken apart once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from skiplens.base.arguments import Arguments
from skiplens.base.errors import InvalidInputError, NotResidualError, SkiplensError
from skiplens.base.preserve_state import preserve_state
from skiplens.graph import ResidualNetwork, dissect
from skiplens.graph.batch import Batch, Inputs, as_batch, map_tensors
from skiplens.graph.functional import main_output
from skiplens.graph.inputs import copy_of, require_module, samples_of, try_call
from skiplens.graph.lens import COARSE
from skiplens.graph.loss import Loss, fitted
from skiplens.report.during_training.record import MonitorOptions


@dataclass(frozen=True)
class Probe:
    """Inputs, and targets where there are any; no loss: the one that fits, or the model's own for labels."""

    inputs: Inputs
    targets: Tensor | None
    loss: Loss = None
    model_has_loss: bool = False

    @classmethod
    def of(cls, probe: Any, loss: Loss, samples: int) -> "Probe":
        """The first samples of inputs, of `(inputs, targets)`, or of a mapping that may hold labels."""
        if isinstance(probe, Tensor):
            return cls(as_batch((probe, probe), "probe").first(samples).inputs, None, loss)
        if not isinstance(probe, Mapping):
            batch = as_batch(probe, "probe").first(samples)
            return cls(batch.inputs, batch.targets, loss)
        arguments = dict(probe)
        labels = arguments.pop("labels", None)
        tensors = (value for value in arguments.values() if isinstance(value, Tensor) and value.ndim)
        counting = next(tensors, None) if labels is None else labels
        batch = as_batch((arguments, counting), "probe").first(samples)
        has_labels = labels is not None
        return cls(batch.inputs, batch.targets if has_labels else None, loss, has_labels and loss is None)

    @property
    def samples(self) -> int:
        """How many samples are looked at."""
        return samples_of(self.inputs).count

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> "Probe":
        """The probe on a device, its floating tensors in `dtype`."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype if tensor.is_floating_point() else None)

        targets = None if self.targets is None else moved(self.targets)
        return Probe(map_tensors(moved, self.inputs), targets, self.loss, self.model_has_loss)

    def loss_and_data(self, outputs: Any) -> tuple[Any, Any]:
        """The loss and the data that a Hessian is taken of."""
        if self.targets is None:
            raise InvalidInputError(
                "The probe has inputs only, and a curvature needs targets. Hand over (inputs, targets), or a mapping "
                "with labels."
            )
        batch = Batch(self.inputs, self.targets)
        if self.model_has_loss:
            return None, batch
        return fitted(main_output(outputs), batch, self.loss)


class ProbedModel:
    """The model, the probe on its device, and what is kept from one look to the next.

    `trained` is the model without the wrappers of `torch.compile` and data parallelism; `model` is what is looked at:
    that, or a float32 copy that follows it where its weights have fewer bits. `first_kernel` is empty before the first
    look; `remarks` are what a person should know about what was measured.
    """

    def __init__(self, model: nn.Module, probe: Probe, options: MonitorOptions) -> None:
        self.trained, self.probe, self.options = require_module(model), probe, options
        self.model = self.trained
        self.first_kernel = torch.zeros(0, 0, dtype=torch.float64)
        self.remarks: list[str] = []
        if any(parameter.dtype in COARSE for parameter in self.trained.parameters()):
            self.model = copy_of(self.trained, "looks are taken at a float32 copy").float()
            self.model.zero_grad(set_to_none=True)
            self.remark("The weights have fewer bits than float32, so looks are taken at a float32 copy of them.")
        self._network: ResidualNetwork | SkiplensError | None = None
        self._network_device: torch.device | None = None

    @property
    def device(self) -> torch.device:
        """Where the model is now."""
        return next((parameter.device for parameter in self.trained.parameters()), torch.device("cpu"))

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Run a block that looks at the model; the model, its gradients and the random state are as before after it."""
        device = self.device
        if self.model is self.trained:
            self.probe = self.probe.to(device)
        else:
            self.model.to(device)
            ours, theirs = (chain(module.parameters(), module.buffers()) for module in (self.model, self.trained))
            with torch.no_grad():
                for copied, value in zip(ours, theirs, strict=True):
                    copied.copy_(value)
            self.probe = self.probe.to(device, torch.float32)
        with preserve_state(self.model), torch.enable_grad(), torch.autocast(device.type, enabled=False):
            self.model.eval()
            for module in self.model.modules():
                # Synchronised batch norms would wait for the other processes.
                own = isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm)
                module.training = own and self.options.statistics == "probe"
            yield

    def outputs(self) -> Any:
        """What the model returns for the probe; a failure says what the model said."""
        return try_call(self.model, Arguments.of(self.probe.inputs))

    def network(self) -> ResidualNetwork:
        """The model taken apart, once for each device; it must have residual blocks."""
        network = self.dissected()
        if not network.blocks:
            raise NotResidualError("The model has no residual blocks, so it has neither path lengths nor block scales.")
        return network

    def dissected(self) -> ResidualNetwork:
        """The model taken apart, tried once for each device."""
        if self._network is None or self._network_device != self.device:
            self._network_device = self.device
            try:
                self._network = dissect(self.model, self.probe.inputs)
            except SkiplensError as error:
                self._network = error
        if isinstance(self._network, SkiplensError):
            raise self._network
        return self._network

    @property
    def block_names(self) -> tuple[str, ...]:
        """Names of the blocks; none before the model was taken apart."""
        network = self._network
        return tuple(block.name for block in network.blocks) if isinstance(network, ResidualNetwork) else ()

    def remark(self, sentence: str) -> None:
        """Keep a sentence, once."""
        if sentence not in self.remarks:
            self.remarks.append(sentence)
