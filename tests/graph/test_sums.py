from skiplens.graph.joins import sum_roots, terms_of
from tests.graph.written_graph import Graph


def terms(reads):
    """The terms of each sum of a graph, as numbers of nodes."""
    flow = Graph(reads).flow
    return [[term.nodes for term in terms_of(flow, root)] for root in sum_roots(flow)]


def test_additions_that_feed_only_each_other_are_one_sum():
    # 1, 2, 3 are ReLUs of the input; 4 = 1 + 2 and 5 = 4 + 3
    assert terms([(0,), (0,), (0,), (1, 2), (4, 3)]) == [[(1,), (2,), (3,)]]


def test_an_addition_that_something_else_reads_is_a_sum_of_its_own():
    # 3 = 1 + 2 is read by the ReLU 4 as well as by 5 = 3 + 4, as in a residual network
    assert terms([(0,), (0,), (1, 2), (3,), (3, 4)]) == [[(1,), (2,)], [(3,), (4,)]]


def test_each_term_knows_the_additions_on_its_way():
    flow = Graph([(0,), (0,), (0,), (1, 2), (4, 3)]).flow
    first, second, third = terms_of(flow, 5)
    assert [(step.addition, step.side) for step in first.steps] == [(5, 0), (4, 0)]
    assert [(step.addition, step.side) for step in second.steps] == [(5, 0), (4, 1)]
    assert [(step.addition, step.side) for step in third.steps] == [(5, 1)]


def test_a_sum_of_very_many_terms_does_not_nest_too_deep():
    count = 1500  # Python's limit of nested calls is 1000
    branches = [(0,)] * count
    additions = [(1, 2), *((count + i, i + 2) for i in range(1, count - 1))]
    (found,) = terms(branches + additions)
    assert found == [(i,) for i in range(1, count + 1)]
