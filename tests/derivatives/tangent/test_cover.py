"""Which rule the probe accepts; that all of them give right kernels is tested with the kernels."""

import pytest

from skiplens.derivatives.functional import pure_model
from skiplens.derivatives.samples import samples_of
from skiplens.derivatives.tangent.cover import find_cover
from tests.derivatives.tangent.cases import CASES

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def cover_of(name):
    model, inputs = CASES[name]()
    return find_cover(pure_model(model), samples_of(inputs))


def kinds(cover, parameter):
    return [type(use.rule).__name__ for use in cover.uses[parameter]]


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("perceptron", "0.weight", ["LinearWeight"]),
        ("perceptron", "0.bias", ["Offset"]),
        ("one_layer", "weight", ["LinearWeight"]),
        ("conv2d_groups", "conv.weight", ["ConvolutionWeight"]),
        ("conv_transposed", "conv.weight", ["LocalGradient"]),
        ("norms", "1.weight", ["Scale"]),
        ("norms", "4.weight", ["LocalGradient"]),
        ("embeddings", "words.weight", ["EmbeddingTable"]),
        ("embeddings", "positions.weight", ["EmbeddingTable"]),
        ("tied_embedding", "words.weight", ["EmbeddingTable", "LinearWeight"]),
        ("reused_layer", "f.weight", ["LinearWeight"] * 3),
        ("inner_parameter", "block.scale", ["LocalGradient"]),
        ("inner_parameter", "block.inner.weight", ["LinearWeight"]),
        ("attention", "attention.out_proj.weight", ["LocalGradient"]),
        ("folded_batch", "f.weight", ["LinearWeight"]),
        ("changing_hook", "0.weight", ["LocalGradient"]),
        ("folded_images", "conv.weight", ["ConvolutionWeight"]),
    ],
)
def test_accepted_rules(name, parameter, expected):
    assert kinds(cover_of(name), parameter) == expected


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("used_outside_its_module", "f.weight"),
        ("used_outside_its_module", "scale"),
        ("bare_parameter", "matrix"),
        ("attention_sequence_first", "attention.in_proj_weight"),
    ],
)
def test_rules_that_would_be_wrong_are_not_accepted(name, parameter):
    assert parameter in cover_of(name).leftover


def test_unused_parameters_are_told_apart():
    cover = cover_of("frozen_and_unused")
    assert cover.unused == ("never.weight", "never.bias")
    assert set(cover.uses) == {"first.bias", "second.weight", "second.bias"}


def test_only_outputs_shared_by_all_samples_are_spread():
    cover = cover_of("embeddings")
    assert "positions" in cover.spread
