import threading
import time

import pytest
import torch
from torch import nn

from skiplens.base.errors import TooLargeError
from skiplens.tangent.coverage import LayerRows
from skiplens.tangent.empirical import empirical_ntk
from skiplens.tangent.gradients import SingleRows, VectorisedRows
from skiplens.tangent.plan import Work, assign, costs, make_plan, prefers_general, prefers_vectorised
from skiplens.tangent.problem import Task, make_problem
from skiplens.tangent.rules import OuterShape
from tests.networks import Formula, drawn, mlp, noise
from tests.tangent.cases import CASES


def layer(rows, row_size, terms, order):
    return Work(rows, row_size, terms * rows * row_size, (OuterShape(terms, row_size, rows),), order)


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


@pytest.mark.parametrize("separate", [True, False])
def test_the_plan_does_not_depend_on_how_much_memory_happens_to_be_free(separate):
    task = Task(8, 0, 4, separate, 8)
    plans = [make_plan(task, NETWORK, free) for free in (3 * 10**9, 2**32, 7 * 10**11)]
    assert plans[0] == plans[1] == plans[2]


def test_less_memory_takes_more_passes():
    task = Task(8, 0, 4, True, 8)
    assert len(make_plan(task, NETWORK, 2**18).groups) > len(make_plan(task, NETWORK, 2**24).groups)


def test_all_in_one_pass_where_it_just_fits():
    """Halves of the budget alone are too much (a table is kept whole, and the rest has no room) or too little."""
    deferred = {f"layer{i}": Work(64, 64, 64 * 64 * 32, (), i + 1, deferred=(600, 600)) for i in range(8)}
    table = Work(1000, 64, 64000, (OuterShape(32, 1, 64), OuterShape(32, 64, 64)), 0)
    task = Task(8, 0, 2, True, 4)
    together = 8 * 8 * 4 * (600 + 2 * 600) + 8 * 4 * (32 * (1 + 2 * 64) + 32 * (64 + 2 * 64))
    for budget in (together, int(1.3 * together), int(1.9 * together)):
        plan = make_plan(task, deferred | {"table": table}, budget)
        assert len(plan.groups) == 1 and plan.memory == together
    assert len(make_plan(task, deferred | {"table": table}, together - 1).groups) == 2


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
        "early": Work(16, 144, 16 * 144 * 1024, (), 0, deferred=(16 * 1024, 16 * 1024)),
        "late": Work(64, 576, 64 * 576 * 64, (), 1, deferred=(64 * 64, 64 * 64)),
    }
    plan = make_plan(Task(64, 0, 10, True, 4), network, 2**30)
    forms = {piece.parameter: piece.form for group in plan.groups for piece in group}
    assert forms == {"early": "gradients", "late": "deferred"}


def test_a_row_that_cannot_fit_says_so():
    task = Task(1000, 0, 4, True, 8)
    with pytest.raises(TooLargeError, match=r"gradients of 1000 samples need 31.2 MiB .* about 4 samples fit"):
        make_plan(task, {"table": Work(10, 1024, 10)}, 2**17)


def matrices(count):
    """A module of bare matrices: no rule knows them."""

    def formula(module, x):
        for matrix in module.matrices:
            x = torch.tanh(x @ matrix)
        return x

    return Formula(formula, matrices=nn.ParameterList([nn.Parameter(torch.zeros(3, 3)) for _ in range(count)]))


CHOICES = {
    "known layers": (mlp, (400, 3), [LayerRows]),
    "a module around bare matrices": (lambda: nn.Sequential(matrices(5), nn.Linear(3, 3)), (400, 3), [VectorisedRows]),
    "few rows of it": (lambda: nn.Sequential(matrices(5), nn.Linear(3, 3)), (20, 3), [LayerRows]),
    "bare matrices": (lambda: matrices(5), (20, 3), [VectorisedRows]),
    "few rows of them": (lambda: matrices(5), (2, 3), [SingleRows]),
}


def assigned(model, inputs):
    problem = make_problem(model, inputs, None, "trace", memory=2**30)
    jobs = assign(problem, problem.budget)
    return [(type(job.source), job.work, job.overhead, vars(job.source).get("chunk")) for job in jobs]


def no_clock(clock):
    """`clock`, which this thread may not read. Threads that other tests left behind may: what they do is not judged."""
    judged = threading.get_ident()

    def read():
        assert threading.get_ident() != judged, "a clock chooses nothing"
        return clock()

    return read


@pytest.mark.parametrize(("build", "shape", "sources"), CHOICES.values(), ids=CHOICES)
def test_the_choice_of_an_algorithm_reads_no_clock(build, shape, sources, monkeypatch):
    model, inputs = drawn(build()), noise(*shape)
    first = assigned(model, inputs)
    assert [job[0] for job in first] == sources
    for name in ("perf_counter", "perf_counter_ns", "time", "time_ns", "monotonic", "process_time", "thread_time"):
        monkeypatch.setattr(time, name, no_clock(getattr(time, name)))
    assert assigned(model, inputs) == first


def test_the_same_bits_whatever_the_clock_says(monkeypatch):
    model, inputs = CASES["inner_parameter"]()
    kernel = empirical_ntk(model, inputs)
    ticks = iter(range(10**6, 0, -1))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    assert torch.equal(empirical_ntk(model, inputs), kernel)


def test_counts_decide():
    many, few = Task(200, 0, 10, False, 4), Task(10, 0, 10, False, 4)
    assert not prefers_general(0.0, 1, many)  # known layers repeat nothing
    assert prefers_general(13.4, 2, many) and not prefers_general(8.0, 7, many)
    assert not prefers_general(13.4, 2, few)
    assert prefers_vectorised(1, few) and prefers_vectorised(20, many)
    assert not prefers_vectorised(200, many)  # one sample at a time
    assert not prefers_vectorised(1, Task(2, 0, 3, False, 4))
