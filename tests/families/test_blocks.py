"""Families of networks: the blocks that are found are those that a person counts in the modelling code."""

import pytest

from skiplens.graph.dissect import find_residual_blocks
from tests.families.table import FAMILIES

NOT_EXPORTED = {"Longformer"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(FAMILIES) - NOT_EXPORTED))
def test_finds_the_blocks_that_a_person_counts(name):
    family = FAMILIES[name]
    blocks = find_residual_blocks(*family.build())
    outermost = [block for block in blocks if block.parent is None]
    assert (len(outermost), len(blocks) - len(outermost)) == (family.blocks, family.inner), family.counted
