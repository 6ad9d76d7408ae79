"""Families of networks: the blocks that are found are those that a person counts in the modelling code."""

import json

import pytest
import torch
from tools.families import PAGE, RESULTS, page

from skiplens.graph.dissect import find_residual_blocks
from tests.families.table import FAMILIES

NOT_EXPORTED = {"Informer", "Longformer", "Nystromformer"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(FAMILIES) - NOT_EXPORTED))
def test_finds_the_blocks_that_a_person_counts(name):
    torch.set_default_dtype(torch.float32)  # what these models take; the fixture of all tests puts it back
    family = FAMILIES[name]
    blocks = find_residual_blocks(*family.build())
    outermost = [block for block in blocks if block.parent is None]
    assert (len(outermost), len(blocks) - len(outermost)) == (family.blocks, family.inner), family.counted


def test_the_page_shows_what_was_seen():
    rows = json.loads(RESULTS.read_text("utf-8"))
    assert PAGE.read_text("utf-8") == page(rows)
    found = {name: tuple(row["blocks"]) for name, row in rows.items() if name not in NOT_EXPORTED}
    assert found == {name: (FAMILIES[name].blocks, FAMILIES[name].inner) for name in found}
