"""The sets of the data flow against plain walks over small random graphs."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens.graph.dissect import dissect
from skiplens.graph.flow import NOWHERE, DataFlow, find_fork, members
from tests.graph.written_graph import Graph
from tests.networks import Formula, linear, noise


@st.composite
def graphs(draw):
    size = draw(st.integers(1, 8))
    return [tuple(draw(st.lists(st.integers(0, i), min_size=1, max_size=2, unique=True))) for i in range(size)]


@settings(max_examples=40)
@given(graphs())
def test_ancestors_descendants_and_dominators_are_what_the_ways_say(reads):
    graph = Graph(reads)
    size = len(graph.reads)
    for end in range(size):
        ways = graph.ways(end)
        assert set(members(graph.flow.above[end])) == set(itertools.chain(*ways))
        everywhere = set.intersection(*map(set, ways)) - {end}
        assert graph.flow.dominator[end] == max(everywhere, default=NOWHERE)
        above = {start for start in range(size) if graph.flow.below[start] >> end & 1}
        assert above == set(itertools.chain(*ways))


@settings(max_examples=40)
@given(graphs())
def test_depth_is_the_longest_way(reads):
    graph = Graph(reads)
    end = len(graph.reads) - 1
    nodes = graph.flow.above[end] & ~1
    assert graph.flow.longest(nodes, lambda _: True) == max(len(way) - 1 for way in graph.ways(end))


@settings(max_examples=60)
@given(graphs())
def test_the_fork_of_two_ends_lies_on_ways_to_both(reads):
    graph = Graph(reads)
    end, other = len(graph.reads) - 1, len(graph.reads) - 2
    fork = find_fork(graph.flow, end, [other])
    assert any(fork in way for way in graph.ways(end))
    assert any(fork in way for way in graph.ways(other))


@pytest.mark.parametrize(
    ("reads", "end", "other", "fork"),
    [
        # 0 → 1 → 2 and 0 → 1 → 3: they part at 1
        ([(0,), (1,), (1,)], 2, 3, 1),
        # 3 is computed from 2
        ([(0,), (1,), (2,)], 2, 3, 2),
        # highway: x = 1, gate = 2 made from x; 3 reads both, 4 reads the gate and x
        ([(0,), (1,), (1, 2), (2, 1)], 3, 4, 1),
        # 2 and 3 are made from 1 by different ways and both ends read both: all ways lead through 1
        ([(0,), (1,), (1,), (2, 3), (2, 3)], 4, 5, 1),
    ],
)
def test_finds_the_fork_where_the_ways_part(reads, end, other, fork):
    assert find_fork(Graph(reads).flow, end, [other]) == fork


def test_two_inputs_have_no_dominator_in_common():
    network = dissect(Formula(lambda m, x, y: m.f(x * y), f=linear()), (noise(2, 3), noise(2, 3)))
    flow = DataFlow(network.exported)
    assert flow.dominator[flow.number[network.node("mul")]] == NOWHERE


def test_a_constant_made_from_parameters_carries_them_to_its_reader():
    network = dissect(Formula(lambda m, x: x @ torch.tanh(m.f.weight), f=linear()), noise(2, 3))
    flow = DataFlow(network.exported)
    product = flow.number[network.node(network.output)]
    assert flow.parameters[product] == {"f.weight"}
    assert flow.depth(1 << product) == 1
