"""A model in training as a monitor sees it: in a fixed mode, on the probe, taken apart once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from skiplens.core.arguments import Arguments
from skiplens.core.errors import NotResidualError, SkiplensError
from skiplens.core.untouched import untouched
from skiplens.residual import ResidualNetwork, dissect
from skiplens.residual.trial import require_module, try_call
from skiplens.training.monitor.options import MonitorOptions
from skiplens.training.monitor.probe import Probe
from skiplens.training.monitor.twin import bring_up_to_date, float_twin, has_few_bits


class Sight:
    """The model, the probe on its device, and what is kept from one look to the next.

    Attributes:
        trained: The model that trains, without the wrappers of `torch.compile` and of data parallelism.
        model: What is looked at: that model, or a float32 copy that follows it where its weights have fewer bits.
        options: What is asked.
        probe: The samples, where the model is.
        first_kernel: The tangent kernel at the first look; empty before it.
        remarks: What a person should know about what was measured.
    """

    def __init__(self, model: nn.Module, probe: Probe, options: MonitorOptions) -> None:
        self.trained, self.probe, self.options = unwrapped(require_module(model)), probe, options
        self.model = float_twin(self.trained) if has_few_bits(self.trained) else self.trained
        self.first_kernel = torch.zeros(0, 0, dtype=torch.float64)
        self.remarks: list[str] = []
        if self.model is not self.trained:
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
            bring_up_to_date(self.model, self.trained)
            self.probe = self.probe.to(device, torch.float32)
        with untouched(self.model), torch.enable_grad(), torch.autocast(device.type, enabled=False):
            self.model.eval()
            for module in self.model.modules():
                module.training = self.options.statistics == "probe" and _takes_own_statistics(module)
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

    def trains(self, model: nn.Module) -> bool:
        """Whether `model` shares a parameter with the one that is looked at."""
        own = {id(parameter) for parameter in self.trained.parameters()}
        return any(id(parameter) in own for parameter in model.parameters())


def _takes_own_statistics(module: nn.Module) -> bool:
    """Whether a module can take the statistics of the probe; synchronised ones would wait for the other processes."""
    return isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside the wrappers of `torch.compile` and of data parallelism."""
    while True:
        inside = getattr(model, "_orig_mod", None)  # how torch.compile keeps the module
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inside = model.module
        if not isinstance(inside, nn.Module):
            return model
        model = inside
