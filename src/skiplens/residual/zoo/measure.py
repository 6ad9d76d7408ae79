"""Sizes of a network of the zoo: parameters and the number of weight layers on the longest path."""

from torch import fx, nn

from skiplens.residual.initialisation import weight_layers


def count_parameters(network: nn.Module) -> int:
    """The numbers in all parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def weight_depth(network: nn.Module) -> int:
    """The number of linear and convolution layers on the longest path from the input to the output."""
    layers = {name for name, _ in weight_layers(network)}
    tracer = _Tracer()
    depths: dict[fx.Node, int] = {}
    for node in tracer.trace(network).nodes:
        own = int(node.op == "call_module" and node.target in layers)
        depths[node] = own + max((depths[source] for source in node.all_input_nodes), default=0)
    return max(depths.values())


class _Tracer(fx.Tracer):
    """Looks into every module but the weight layers and those of torch itself."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, nn.Linear | nn.Conv2d) or super().is_leaf_module(m, module_qualified_name)
