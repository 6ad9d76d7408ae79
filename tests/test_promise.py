"""Looking never changes the model: all public calls on awkward models, whole, refused and interrupted."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import _named_member_accessor as member_access
from torch.utils.data import DataLoader, TensorDataset

import skiplens as sl
from skiplens.base.errors import SkiplensError
from skiplens.graph.batch import Batch
from skiplens.graph.inputs import copy_of, require_module
from skiplens.report.inspection import UNEXPECTED
from skiplens.report.lenses import LENSES
from skiplens.signal.layers import layer_states
from skiplens.task.measure import measure_task
from tests.awkward_models import MODELS, REFUSED, made

pytestmark = pytest.mark.filterwarnings("ignore")  # what torch says about old layers is not looked at here

Data = tuple[Tensor, Tensor]


def monitored(model: nn.Module, data: Data) -> None:
    with sl.Monitor(model, data, every=1) as monitor:
        monitor.step(1.0)


def verified(model: nn.Module, data: Data) -> None:
    sl.verify(sl.inspect(model, data, lenses=("signal",)), model, data)


def inspected(model: nn.Module, data: Data, lens: str) -> None:
    report = sl.inspect(model, data, lenses=(lens,))
    assert not [problem for problem in report.problems if UNEXPECTED in problem.message]


QUICK: dict[str, Callable[[nn.Module, Data], Any]] = {
    "empirical_ntk": lambda model, data: sl.empirical_ntk(model, data[0]),
    "hessian_spectrum": lambda model, data: sl.hessian_spectrum(model, data, method="lanczos", probes=2, steps=3),
    "layers": lambda model, data: layer_states(require_module(model), Batch(*data)),
    "task": lambda model, data: measure_task(require_module(model), Batch(*data)),
}
CALLS: dict[str, Callable[[nn.Module, Data], Any]] = {
    **QUICK,
    **{f"inspect {name}": lambda model, data, name=name: inspected(model, data, name) for name in LENSES},
    "find_residual_blocks": lambda model, data: sl.find_residual_blocks(model, data[0]),
    "path_spectrum": lambda model, data: sl.path_spectrum(model, data[0]),
    "jacobian_spectrum": lambda model, data: sl.jacobian_spectrum(model, data[0]),
    "loss_landscape": lambda model, data: sl.loss_landscape(model, data, points=3, dimensions=1),
    "check_hypotheses": sl.check_hypotheses,
    "forecast": lambda model, data: sl.forecast(model, data, steps=100, cost=30),
    "Monitor": monitored,
    "verify": verified,
    "improve": lambda model, data: sl.improve(model, tuple(torch.cat([part] * 6) for part in data), steps=70, cost=140),
    "rank": lambda model, data: sl.rank({"it": model, "again": model}, data, steps=100, cost=30),
    "infinite_width": lambda model, data: sl.infinite_width(model, data[0]).ntk(data[0]),
    "compare": lambda model, data: sl.compare({"it": model, "again": model}, data, lenses=("signal", "layers")),
}


class State:
    """All that a model, its inputs and the random states hold: which objects stand where, and their bits."""

    def __init__(self, model: nn.Module, data: Data) -> None:
        self.objects: list[Any] = []
        self.values: list[Any] = []
        for module in model.modules():
            for name, entry in vars(module).items():
                self.objects += [name, entry]
                if isinstance(entry, dict):
                    for key, value in entry.items():
                        self.objects += [key, value]
                        self._keep(value)
                elif isinstance(entry, list | set):
                    self.values.append(sorted(map(str, entry)))
                self._keep(entry)
        for tensor in data:
            self._keep(tensor)
        name, keys, *rest = np.random.get_state()  # noqa: NPY002
        self.values += [
            torch.get_rng_state(),
            name,
            keys.tolist(),
            *rest,
        ]  # the checks of types in tests draw with Python

    def _keep(self, value: Any) -> None:
        if isinstance(value, Tensor) and not is_lazy(value):
            gradient = value.grad if value.is_leaf else None
            self.objects.append(gradient)
            self.values += [_bits(value), value.requires_grad, None if gradient is None else _bits(gradient)]

    def require_same(self, model: nn.Module, data: Data) -> None:
        after = State(model, data)
        assert [id(entry) for entry in after.objects] == [id(entry) for entry in self.objects]
        assert len(after.values) == len(self.values)
        for now, before in zip(after.values, self.values, strict=True):
            assert torch.equal(now, before) if isinstance(now, Tensor) else now == before


def _bits(tensor: Tensor) -> Tensor | tuple[int, ...]:
    if tensor.is_meta:
        return tuple(tensor.shape)
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    return dense.clone().contiguous().view(torch.uint8) if dense.ndim else dense.clone().reshape(1).view(torch.uint8)


def require_unchanged(call: Callable[[nn.Module, Data], Any], model: nn.Module, data: Data, refusable: bool) -> None:
    before = State(model, data)
    try:
        call(model, data)
    except (SkiplensError, KeyboardInterrupt):  # one clear sentence, never an error of torch
        if not refusable:
            raise
    finally:
        before.require_same(model, data)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "compiled"])  # which takes its time
def test_looking_changes_nothing(name):
    for number, call in enumerate(QUICK.values()):
        model, data = made(name)
        require_unchanged(call, model.train(number % 2 == 0), data, name in REFUSED)


@pytest.mark.matrix
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", MODELS)
def test_no_call_changes_any_model(name, call, training):
    model, data = made(name)
    require_unchanged(CALLS[call], model.train(training), data, refusable=True)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        *(
            ("sparse", "jacobian_spectrum"),
            ("sparse", "compare"),
            ("sparse", "inspect signal"),
            ("meta", "check_hypotheses"),
            ("meta", "compare"),
        ),
        *(("script", "forecast"), ("script", "jacobian_spectrum"), ("freezes itself", "forecast")),
        *(("weight norm", call) for call in ("inspect tangent", "infinite_width", "rank")),
    ],
)
def test_what_torch_says_never_comes_through(name, call):
    model, data = made(name)
    require_unchanged(CALLS[call], model, data, refusable=True)


ALONE = """
import random, warnings
warnings.simplefilter("ignore")
from skiplens.base.errors import SkiplensError
from tests.awkward_models import made
from tests.test_promise import CALLS
for call in CALLS:
    model, data = made("draws with Python")
    before = random.getstate()
    try:
        CALLS[call](model, data)
    except SkiplensError:
        pass
    assert random.getstate() == before, call
print(len(CALLS), "calls")
"""


@pytest.mark.slow
def test_no_call_moves_the_random_state_of_python():
    """In a process of its own: here the checks of types draw with Python between all lines."""
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.stdout.strip() == f"{len(CALLS)} calls", done.stderr


def test_a_copy_is_made_of_a_weight_with_a_history():
    model, (inputs, _) = made("weight norm")
    assert model[0].inner.weight.grad_fn is not None  # which copy.deepcopy refuses
    model(inputs).sum().backward()
    fresh = copy_of(model)
    torch.testing.assert_close(fresh(inputs), model(inputs), rtol=0, atol=0)
    with torch.no_grad():
        fresh[0].inner.weight_g.mul_(2)  # the copy makes its weight anew, from its own parts
    assert not torch.equal(fresh(inputs), model(inputs))
    own = {id(part) for part in model.parameters()}
    assert not own & {id(part) for part in fresh.parameters()}


class Interrupt:
    """A key that is pressed when something happens for the n-th time."""

    def __init__(self, moment: int) -> None:
        self.left = moment

    def __call__(self, *_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def interrupt_forward(call: Callable[[nn.Module, Data], Any], name: str, moment: int) -> None:
    model, data = made(name)
    key = Interrupt(moment)
    model[1].inner.register_forward_hook(key)
    require_unchanged(call, model.train(), data, refusable=True)


def interrupt_swap(call: Callable[[nn.Module, Data], Any], name: str, moment: int, patch: pytest.MonkeyPatch) -> None:
    """Press the key while torch puts other tensors into the model or takes them out again."""
    model, data = made(name)
    key, swap = Interrupt(moment), member_access.swap_tensor

    def swapped(*args: Any, **named: Any) -> Any:
        before = swap(*args, **named)
        key()
        return before

    with patch.context() as patched:
        patched.setattr(member_access, "swap_tensor", swapped)
        require_unchanged(call, model.train(), data, refusable=True)


MOMENTS = (1, 2, 3, 5, 8, 13, 21, 34)


@pytest.mark.parametrize("call", QUICK)
@pytest.mark.parametrize("name", ["shared", "tied", "batch norm", "hooked"])
def test_an_interrupted_look_changes_nothing(name, call, monkeypatch):
    for moment in MOMENTS:
        interrupt_forward(QUICK[call], name, moment)
        interrupt_swap(QUICK[call], name, moment, monkeypatch)


@pytest.mark.matrix
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["shared", "tied", "batch norm", "spectral norm", "parametrized", "dropout"])
def test_no_interrupt_changes_a_model(name, call, moment, monkeypatch):
    interrupt_forward(CALLS[call], name, moment)
    interrupt_swap(CALLS[call], name, moment, monkeypatch)


def test_a_failing_model_is_left_as_it_was():
    def fail(*_: Any) -> None:
        raise torch.OutOfMemoryError("no memory")

    model, data = made("batch norm")
    model[1].register_forward_hook(fail)
    before = State(model, data)
    with pytest.raises(torch.OutOfMemoryError):
        sl.hessian_spectrum(model, data)
    before.require_same(model, data)


def test_a_shuffling_loader_leaves_the_random_state():
    model, data = made("tied")
    loader = DataLoader(TensorDataset(*data), batch_size=3, shuffle=True)
    before = State(model, data)
    sl.inspect(model, loader, lenses=("layers",))
    before.require_same(model, data)


@pytest.mark.parametrize("name", ["assigns weight.data", "changes weight.data", "changes weight"])
@pytest.mark.parametrize("call", QUICK)
def test_a_layer_that_changes_its_weight_is_named_and_left_as_it_was(name, call):
    model, data = made(name)
    before = State(model, data)
    with pytest.raises(SkiplensError, match=r"changes its own parameters when it is called: (0\.inner|the data of)"):
        QUICK[call](model, data)
    before.require_same(model, data)


def settled_by_hand() -> nn.Module:
    """The model with a largest norm after one call, and that layer as a plain one."""
    model, data = made("assigns weight.data")
    model(data[0])
    plain = nn.Linear(4, 4)
    plain.load_state_dict({name: model[0].inner.state_dict()[name] for name in ("weight", "bias")})
    model[0].inner = plain
    return model


def test_layers_with_a_largest_norm_are_measured_on_a_copy_after_one_call():
    model, data = made("assigns weight.data")
    before = State(model, data)
    report = sl.inspect(model, data, lenses=("layers", "task", "curvature", "tangent", "forecast"))
    before.require_same(model, data)
    plain = sl.inspect(settled_by_hand(), data, lenses=("layers", "task", "curvature", "tangent"))
    found = {reading.kind: reading for reading in report.readings}
    for reading in plain.readings:
        for name in {"layers": ("gradients", "parameter_gradients"), "curvature": ("eigenvalues",)}.get(
            reading.kind, ()
        ):
            torch.testing.assert_close(getattr(found[reading.kind], name), getattr(reading, name), equal_nan=True)
        if reading.kind == "task":
            assert found["task"].loss == pytest.approx(reading.loss)
        if reading.kind == "tangent":
            torch.testing.assert_close(found["tangent"].kernel, reading.kernel)
    assert found["layers"].parameter_norms[0] < 0.5 < model[0].inner.weight.norm()
    assert any("a copy of it was measured after one such call" in note for note in found["forecast"].notes)
    assert not [problem for problem in report.problems if UNEXPECTED in problem.message]


def test_what_changes_at_every_call_is_refused_by_all_lenses():
    model, data = made("changes weight.data")
    before = State(model, data)
    with pytest.raises(SkiplensError, match=r"changes its own parameters when it is called: 0\.inner\.weight"):
        sl.inspect(model, data, lenses=("layers",))
    with pytest.raises(SkiplensError, match=r"changes its own parameters when it is called: 0\.inner\.weight"):
        sl.forecast(model, data, cost=20)
    before.require_same(model, data)


@pytest.mark.parametrize("name", ["assigns weight.data", "changes weight.data"])
def test_a_monitor_refuses_such_a_layer_before_the_training_begins(name):
    model, data = made(name)
    before = State(model, data)
    with pytest.raises(SkiplensError, match="changes its own parameters"):
        sl.Monitor(model, data).start()
    before.require_same(model, data)


def derivatives(model: nn.Module, data: Data) -> tuple[Tensor, Tensor, Tensor]:
    """Jacobian of the outputs, gradient and Hessian of the loss, each parameter once, by autograd alone."""
    parameters = list(model.parameters())

    def joined(value: Tensor, **options: Any) -> Tensor:
        found = torch.autograd.grad(value, parameters, retain_graph=True, **options)
        return torch.cat([part.flatten() for part in found])

    outputs = model(data[0])
    jacobian = torch.stack([joined(value) for value in outputs.flatten()])
    gradient = joined(nn.functional.cross_entropy(outputs, data[1]), create_graph=True)
    return jacobian, gradient.detach(), torch.stack([joined(entry) for entry in gradient])


@pytest.mark.parametrize("name", ["shared", "tied", "one block three times"])
def test_derivatives_sum_over_all_places_of_a_parameter(name):
    model, (inputs, targets) = made(name)
    model, data = model.double(), (inputs.double(), targets)
    jacobian, gradient, hessian = derivatives(model, data)
    by_sample = jacobian.reshape(len(targets), -1)
    for algorithm in ("layers", "jacobian", "rows", "products"):
        kernel = sl.empirical_ntk(model, data[0], algorithm=algorithm)
        torch.testing.assert_close(kernel, by_sample @ by_sample.T)
    spectrum = sl.hessian_spectrum(model, data, method="exact")
    torch.testing.assert_close(spectrum.eigenvalues, torch.linalg.eigvalsh(hessian))
    assert spectrum.gradient_norm == pytest.approx(gradient.norm().item())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    nn.functional.cross_entropy(model(data[0]), targets).backward()
    moved = model[0].inner.weight.detach() - 0.1 * model[0].inner.weight.grad
    optimizer.step()  # it still trains
    torch.testing.assert_close(model[0].inner.weight.detach(), moved)
    assert isinstance(model[1].inner.weight, nn.Parameter)
