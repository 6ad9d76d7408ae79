"""Graphs written down as lists of numbers, for tests of what is read off a graph."""

import torch

from skiplens.graph.export import ExportedGraph
from skiplens.graph.flow import DataFlow


class Graph:
    """Node 0 is the input; each further node is the ReLU of one earlier node or the sum of two."""

    def __init__(self, reads: list[tuple[int, ...]]) -> None:
        graph = torch.fx.Graph()
        nodes = [graph.placeholder("x")]
        for sources in reads:
            target = torch.ops.aten.relu.default if len(sources) == 1 else torch.ops.aten.add.Tensor
            nodes.append(graph.call_function(target, tuple(nodes[s] for s in sources)))
        for node in nodes:
            node.meta["val"] = torch.zeros(2)
        graph.output((nodes[-1],))
        self.reads = [(), *reads]
        self.flow = DataFlow(ExportedGraph(graph, {}, {}, {}, ("x",), {"output": nodes[-1].name}))

    def ways(self, end: int) -> list[tuple[int, ...]]:
        """Every way from the input to `end`, as the nodes on it."""
        if not self.reads[end]:
            return [(end,)]
        return [(*way, end) for source in set(self.reads[end]) for way in self.ways(source)]
