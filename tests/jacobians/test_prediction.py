import pytest
import torch

from skiplens import zoo
from skiplens.base.errors import InvalidInputError
from skiplens.edits import surgery
from skiplens.jacobians import averages
from tests.networks import LinearResidual, noise


@pytest.fixture(scope="module")
def effects():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    model, images = zoo.build("mnist_residual"), noise(2, 1, 28, 28).sigmoid()
    changes = (surgery.add_average_pool_skips, surgery.add_isometric_skips)
    options = {"blocks": ["block2.residual"], "coupling": "sample", "parts": ("block",)}
    yield [averages.predict_effect(model, images, change, **options) for change in changes]
    torch.set_default_dtype(before)


@pytest.mark.slow
def test_pools_raise_the_singular_values_of_their_block(effects):
    """Table 10.2 of the theory note, block 2: medians 0.58 (projection), 0.75 (average pool), 1.14 (isometric)."""
    average, isometric = effects
    assert average.changed == isometric.changed == ("block2.residual",)
    medians = [e.after.statistics("block2.residual").median for e in effects]
    assert average.before.statistics("block2.residual").median < medians[0] < medians[1]
    assert 0 < average.gain("block2.residual") < isometric.gain("block2.residual")


def test_the_effect_is_told_in_one_line_a_block(effects):
    lines = str(effects[0]).splitlines()
    assert len(lines) == 2 and lines[0].startswith("block2.residual: median singular value") and "network" in lines[1]


def test_a_change_of_the_structure_is_refused():
    with pytest.raises(InvalidInputError, match="made other blocks"):
        averages.predict_effect(LinearResidual(depth=2), noise(1, 3), lambda model, inputs: LinearResidual(depth=1))
