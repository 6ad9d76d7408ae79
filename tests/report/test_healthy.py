"""Healthy networks come out clean: nothing above a note."""

import pytest
import torch

import skiplens as sl
from skiplens import zoo
from tests import hugging_face

FAMILIES = [
    hugging_face.resnet_basic,
    hugging_face.gpt2,
    *(
        pytest.param(build, marks=pytest.mark.slow)
        for build in (
            hugging_face.resnet_bottleneck,
            hugging_face.regnet,
            hugging_face.convnext,
            hugging_face.vit,
            hugging_face.llama,
            hugging_face.bert,
        )
    ),
]
NETWORKS = {
    "digits_resnet": {},
    "preact_resnet18": {"width": 8},
    "preact_resnet": {"depth": 20, "width": 8},
    "tangent_resnet": {},
}


def serious(model, inputs, count, lenses=("paths", "tangent")):
    report = sl.inspect(model, (inputs, torch.arange(count) % 2), lenses=lenses)
    return [found.sentence for found in report.findings if found.severity != "note"]


@pytest.mark.slow
@pytest.mark.parametrize("build", FAMILIES, ids=lambda build: build.__name__)
def test_hugging_face_models(build):
    assert serious(*hugging_face.built(build), 2) == []


@pytest.mark.parametrize("build", [FAMILIES[0], *FAMILIES[2:4]], ids=lambda build: build.__name__)
def test_batch_norm_in_training_mode(build):
    model, inputs = hugging_face.built(build)
    assert serious(model.train(), inputs, 2, ["structure"]) == []


@pytest.mark.slow
def test_many_bottlenecks(seed):
    inputs = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    assert serious(zoo.build("preact_resnet50", seed, width=4), inputs, 8, ["structure"]) == []


@pytest.mark.parametrize(
    "name", ["digits_resnet", *(pytest.param(name, marks=pytest.mark.slow) for name in list(NETWORKS)[1:])]
)
def test_networks_of_the_zoo(name, seed):
    model = zoo.build(name, seed, **NETWORKS[name])
    shape = zoo.entry(name).settings(NETWORKS[name]).input_shape()
    inputs = torch.randn(16, *shape, generator=torch.Generator().manual_seed(seed))
    assert serious(model, inputs, 16, ["paths"]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_lens_on_networks_of_the_zoo(name, seed):
    model = zoo.build(name, seed, **NETWORKS[name]).float()
    shape = zoo.entry(name).settings(NETWORKS[name]).input_shape()
    inputs = torch.randn(16, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    assert serious(model, inputs, 16, ()) == []
