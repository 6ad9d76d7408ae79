"""See values inside a run of the graph as they pass, without keeping them."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import fx

from skiplens.residual.interpreter import Call, plain_call

Watcher = Callable[[Any, tuple[Any, ...]], None]
"""Called with the value of an operation and with its arguments."""


def watching_call(watchers: Mapping[str, Watcher]) -> Call:
    """Carry out operations as they are, and show those named in `watchers` to their watcher."""

    def call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        value = plain_call(node, arguments, keywords)
        if node.name in watchers:
            watchers[node.name](value, arguments)
        return value

    return call
