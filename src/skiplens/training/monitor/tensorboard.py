"""The numbers of a look as scalars of TensorBoard."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from skiplens.core.doors import open_door


@runtime_checkable
class Writer(Protocol):
    """What is needed of a SummaryWriter: that of torch, of tensorboardX or of a logger."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Keep one number."""

    def flush(self) -> Any:
        """Write what is kept."""


def writer_in(place: Writer | Path | str) -> tuple[Writer, Any]:
    """The writer, and what is to be closed in the end: a writer that was made here, into a folder, or nothing."""
    if isinstance(place, Writer):
        return place, None
    module = open_door("torch.utils.tensorboard", "writing TensorBoard files", install="skiplens[tensorboard]")
    writer = module.SummaryWriter(log_dir=str(place))
    return writer, writer


def write_scalars(writer: Writer, step: int, numbers: Mapping[str, Tensor], parts: Mapping[str, Sequence[str]]) -> None:
    """Write numbers as `skiplens/<name>`, and the entries of `parts`' rows as `skiplens/<name>/<part>`."""
    for name, value in numbers.items():
        if value.ndim == 0:
            writer.add_scalar(f"skiplens/{name}", float(value), step)
        for part, entry in zip(parts.get(name, ()), value.reshape(-1).tolist(), strict=False):
            writer.add_scalar(f"skiplens/{name}/{part}", entry, step)
    writer.flush()
