import gc
import inspect
import weakref
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.graph.functional import (
    is_batch_coupled,
    output_shape,
    pure_model,
    saved_bytes_per_sample,
    saved_tensors,
)
from skiplens.graph.inputs import samples_of
from tests.networks import Formula, drawn, mlp, noise


def test_calling_with_the_models_own_parameters_is_calling_the_model():
    model, x = mlp(), noise(4, 3)
    pure = pure_model(model)
    assert torch.equal(pure(pure.parameters, samples_of(x)), model(x))


def test_other_parameters_take_the_place_of_the_models_own():
    model, x = mlp(), noise(4, 3)
    pure = pure_model(model)
    doubled = {name: 2 * p for name, p in pure.parameters.items()}
    outputs = pure(doubled, samples_of(x))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    assert torch.equal(outputs, model(x))


def test_tied_parameters_are_replaced_under_all_their_names():
    layer = nn.Linear(3, 3)
    model = Formula(lambda m, x: m.second(m.first(x)), first=layer, second=nn.Linear(3, 3))
    model.second.weight = model.first.weight
    pure = pure_model(model)
    assert list(pure.parameters) == ["first.weight", "first.bias", "second.bias"]
    zeros = {name: torch.zeros_like(p) for name, p in pure.parameters.items()}
    assert not pure(zeros, samples_of(noise(2, 3))).any()


def test_parameters_can_be_chosen():
    model = mlp()
    model[0].weight.requires_grad_(False)
    assert list(pure_model(model).parameters) == ["0.bias", "2.weight", "2.bias"]
    assert list(pure_model(model, ["0.weight"]).parameters) == ["0.weight"]
    assert list(pure_model(model, lambda name: name.startswith("2")).parameters) == ["2.weight", "2.bias"]
    assert pure_model(model).parameter_count == 4 + 12 + 3


def test_leaves_share_memory_and_require_gradients():
    pure = pure_model(mlp())
    leaves = pure.leaves(["0.weight"])
    assert leaves["0.weight"].requires_grad
    assert leaves["0.weight"].data_ptr() == pure.parameters["0.weight"].data_ptr()


@pytest.mark.parametrize(
    ("model", "choice", "message"),
    [
        (nn.ReLU(), None, "None of the model's 0 parameters is chosen"),
        (nn.Linear(2, 2).requires_grad_(False), None, "None of the model's 2 parameters is chosen"),
        (nn.Linear(2, 2), ["weigth"], "no parameter 'weigth'. Did you mean weight"),
        (nn.Linear(2, 2, dtype=torch.complex64), None, "'weight' is of type torch.complex64; only real ones"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta")), None, "are on cpu and meta; move the model"),
    ],
)
def test_models_that_cannot_be_differentiated_are_refused(model, choice, message):
    with pytest.raises(InvalidInputError, match=message):
        pure_model(model, choice)


def test_what_is_no_model_is_refused():
    without_type_checks = inspect.unwrap(pure_model)
    with pytest.raises(InvalidInputError, match=r"of type str; a torch.nn.Module instance was wanted"):
        without_type_checks("model")


def test_output_shape_is_that_of_one_sample():
    assert output_shape(pure_model(mlp()), samples_of(noise(4, 3))) == (3,)


def test_dropout_is_explained():
    model = nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5)).train()
    with pytest.raises(SkiplensError, match=r"different outputs: Dropout in training mode draws anew.*model.eval\(\)"):
        output_shape(pure_model(model), samples_of(noise(4, 3)))
    output_shape(pure_model(model.eval()), samples_of(noise(4, 3)))


def test_other_randomness_is_explained():
    model = Formula(lambda m, x: m.f(x) + torch.randn(1), f=nn.Linear(3, 3))
    with pytest.raises(SkiplensError, match="its forward pass draws or counts at each call"):
        output_shape(pure_model(model), samples_of(noise(4, 3)))


def test_inputs_that_the_model_refuses_are_explained():
    with pytest.raises(InvalidInputError, match=r"cannot be called with these inputs \(0: \(2, 5\) torch.float64\)"):
        output_shape(pure_model(mlp()), samples_of(noise(4, 5)))


def test_outputs_that_are_not_finite_are_refused():
    model = Formula(lambda m, x: m.f(x) / 0, f=nn.Linear(3, 3))
    with pytest.raises(InvalidInputError, match="outputs are NaN or infinite for finite inputs"):
        output_shape(pure_model(model), samples_of(noise(4, 3)))


def test_coupling_is_found_by_module_and_by_behaviour():
    x = noise(4, 3)
    norm = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    assert is_batch_coupled(norm.train(), x)
    assert is_batch_coupled(norm.train(), x[:1].expand(4, 3))  # samples that are all the same show no coupling
    assert not is_batch_coupled(norm.eval(), x)
    assert is_batch_coupled(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)).eval(), x)
    assert is_batch_coupled(Formula(lambda m, x: m.f(x) - m.f(x).mean(0), f=nn.Linear(3, 3)), x)
    assert is_batch_coupled(nn.GRU(3, 3), x)  # samples as times: the first has no time before it
    assert not is_batch_coupled(mlp(), x)


def test_saved_bytes_grow_with_the_activations():
    narrow, wide = (drawn(mlp(hidden=hidden)) for hidden in (4, 400))
    x = samples_of(noise(4, 3))
    # tanh keeps its 400 (or 4) outputs of 8 bytes a sample; nothing but the inputs is kept beside them.
    assert saved_bytes_per_sample(pure_model(wide), x) - saved_bytes_per_sample(pure_model(narrow), x) == 396 * 8


def test_what_was_counted_is_let_go():
    """An operation that keeps its own result (tanh) must not keep itself with it; the data would never be freed."""
    data, weights = np.ones((5, 3)), noise(3).requires_grad_()
    known = weakref.ref(data)
    assert saved_tensors(partial(lambda inputs: torch.tanh(inputs * weights), torch.from_numpy(data)), [])
    del data
    gc.collect()
    assert known() is None


def test_one_sample_depends_on_no_other():
    called = []
    model = Formula(lambda m, x: called.append(1) or m.f(x), f=nn.Linear(3, 2))
    assert not is_batch_coupled(model, noise(1, 3)) and not called
    assert not is_batch_coupled(model, noise(2, 3)) and called
