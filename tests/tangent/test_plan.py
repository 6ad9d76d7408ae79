import pytest

from skiplens.base.errors import TooLargeError
from skiplens.tangent.plan import Work, costs, make_plan
from skiplens.tangent.problem import Task
from skiplens.tangent.rules import OuterShape


def layer(rows, row_size, terms, order):
    return Work(rows, row_size, terms * rows * row_size, OuterShape(terms, row_size, rows), order)


NETWORK = {f"layer{i}": layer(16 * 2**i, 16 * 2**i, 1024 // 4**i, i) for i in range(4)}


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("budget", [2**30, 2**22, 2**19, 2**17])
def test_every_row_of_every_parameter_once_within_the_budget(separate, budget):
    task = Task(8, 0, 4, separate, 8)
    plan = make_plan(task, NETWORK, budget)
    assert plan.memory <= budget
    seen = {name: [] for name in NETWORK}
    for group in plan.groups:
        for piece in group:
            seen[piece.parameter] += range(piece.rows.start, piece.rows.stop)
    assert {name: sorted(rows) for name, rows in seen.items()} == {
        name: list(range(work.rows)) for name, work in NETWORK.items()
    }


def test_less_memory_takes_more_passes():
    task = Task(8, 0, 4, True, 8)
    assert len(make_plan(task, NETWORK, 2**18).groups) > len(make_plan(task, NETWORK, 2**24).groups)


def test_outputs_that_are_summed_are_looked_at_in_turn():
    assert make_plan(Task(8, 0, 4, False, 8), NETWORK, 2**20).outputs_at_once < 4
    assert make_plan(Task(8, 0, 4, True, 8), NETWORK, 2**20).outputs_at_once == 4


def test_groups_start_at_the_output():
    plan = make_plan(Task(8, 0, 4, True, 8), NETWORK, 2**20)
    orders = [NETWORK[piece.parameter].order for group in plan.groups for piece in group]
    assert orders == sorted(orders, reverse=True)


@pytest.mark.parametrize("separate", [True, False])
def test_one_position_prefers_outer_products_and_many_do_not(separate):
    task = Task(100, 0, 10, separate, 8)
    plain, outer = costs(task, layer(64, 64, 1, 0))
    assert outer < plain
    plain, outer = costs(task, layer(16, 144, 1024, 0))
    assert plain < outer


def test_layers_with_more_weights_than_outputs_are_deferred():
    network = {
        "early": Work(16, 144, 16 * 144 * 1024, None, 0, deferred=(16 * 1024, 16 * 1024)),
        "late": Work(64, 576, 64 * 576 * 64, None, 1, deferred=(64 * 64, 64 * 64)),
    }
    plan = make_plan(Task(64, 0, 10, True, 4), network, 2**30)
    forms = {piece.parameter: piece.form for group in plan.groups for piece in group}
    assert forms == {"early": "gradients", "late": "deferred"}


def test_a_row_that_cannot_fit_says_so():
    task = Task(1000, 0, 4, True, 8)
    with pytest.raises(TooLargeError, match=r"gradients of 1000 samples need 31.2 MiB .* about 4 samples fit"):
        make_plan(task, {"table": Work(10, 1024, 10)}, 2**17)
