import functools
import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.base.identity import identity_of

ROOT = Path(__file__).parents[2]
FACTOR = 2.0


class Counted(nn.Module):
    """A model of the user's own, with what models hold beside parameters."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2, dtype=torch.float32)
        nn.init.ones_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
        self.register_buffer("shift", torch.ones(2, dtype=torch.float32), persistent=False)
        self.tags = {"one", "two", "three", "four"}

    @functools.cached_property
    def sum(self):
        return self.layer.weight.sum().item()

    def forward(self, x):
        return FACTOR * self.layer(x) + self.shift


def again(x):
    return again(x) if x in {"a", "b", "c"} else Counted()


@pytest.mark.slow
def test_it_is_the_same_in_every_process():
    code = "from tests.base.test_identity import *; print(identity_of((Counted(), again)))"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, encoding="utf-8"
    )
    assert done.stdout.strip() == identity_of((Counted(), again)), done.stderr


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.eval(),
        lambda model: model.layer.weight.data[0, 0].add_(1e-6),
        lambda model: model.layer.bias.data[0].mul_(-1),  # the sign of a zero
        lambda model: model.shift.add_(1),
        lambda model: model.tags.discard("one"),
        lambda model: model.layer.register_forward_hook(lambda *_: None),
    ],
)
def test_every_bit_of_a_model_counts(change):
    model = Counted()
    change(model)
    assert identity_of(model) != identity_of(Counted())


def test_what_is_computed_again_does_not_count():
    model = Counted()
    assert model.sum == 4 and "sum" in vars(model)
    assert identity_of(model) == identity_of(Counted())


def test_what_a_function_reads_from_around_it_counts(monkeypatch):
    before = identity_of(Counted), identity_of(Counted().forward), identity_of(again)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert not set(before) & {identity_of(Counted), identity_of(Counted().forward), identity_of(again)}


@pytest.mark.parametrize(("folder", "same"), [("dist-packages", True), ("mine", False)])
def test_packages_of_the_system_are_known_by_name(tmp_path, monkeypatch, folder, same):
    (tmp_path / folder).mkdir()
    monkeypatch.syspath_prepend(tmp_path / folder)
    found = []
    for content in ("def f(): return 1\n", "def f(): return 20\n"):
        (tmp_path / folder / f"of_{same}.py").write_text(content)
        monkeypatch.delitem(sys.modules, f"of_{same}", raising=False)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        importlib.invalidate_caches()
        found.append(identity_of(importlib.import_module(f"of_{same}").f))
    assert (found[0] == found[1]) == same


def test_tensors_are_told_apart_by_type_and_shape():
    zeros = [torch.zeros(4), torch.zeros(2, 2), torch.zeros(4, dtype=torch.int32), torch.zeros(4).numpy()]
    assert len({identity_of(zero) for zero in zeros}) == 4
    assert identity_of(torch.arange(6).view(2, 3).T) == identity_of(torch.arange(6).view(2, 3).T.contiguous())


def test_what_cannot_be_told_apart_is_refused():
    with pytest.raises(InvalidInputError, match=r"be told whether 'lock' is the same as before \(cannot pickle"):
        identity_of(threading.Lock())
    circle = []
    circle.append(circle)
    with pytest.raises(InvalidInputError, match="be told whether 'list' is the same"):
        identity_of(circle)
