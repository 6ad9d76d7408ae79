from dataclasses import replace

import torch

from skiplens.jacobians.report import jacobians_section, jacobians_sentence
from tests.sample_readings import jacobians


def test_the_sentence_compares_weak_directions():
    """Of the branches (0.5, 0.1) and (1, 0) one value of four lies below a tenth, of the blocks none."""
    assert jacobians_sentence(jacobians()) == (
        "Through the branches alone 25 % of the directions shrink to less than a tenth; with the shortcuts it is 0 %. "
        "From input to output singular values lie between 0.5 and 2."
    )


def test_lost_directions_are_told():
    sentence = jacobians_sentence(jacobians(network=torch.tensor([1.0, 0.0])))
    assert "50 % of the directions are lost" in sentence


def test_a_density_does_not_know_the_smallest():
    """Ten steps of Lanczos gave 1.08 on a small GPT-2 whose smallest singular value is zero."""
    seen = replace(jacobians(), methods=("lanczos",) * len(jacobians().methods))
    assert jacobians_sentence(seen).endswith("From input to output singular values reach 2.")
    assert dict(jacobians_section(seen).facts)["its condition number"] == "at least 4"


def test_facts_and_rows_hold_the_numbers():
    section = jacobians_section(jacobians())
    facts = dict(section.facts)
    assert facts["its condition number"] == "4" and facts["Jacobians"] == "of each sample"
    first, second = section.rows
    assert first["block"] == "a" and first["median"] == "1" and first["branch alone"] == "0.1"
    assert first["lost, branch"] == "0 %" and second["lost, branch"] == "not resolved"  # by Lanczos
    assert second["below 0.1, branch"] == "50 %" and second["below 0.1"] == "0 %"
    assert section.notes == ("A note.",)


def test_without_blocks_there_is_the_network_alone():
    alone = jacobians(
        singular_values={"network": torch.ones(2)},
        weights={"network": torch.full((2,), 0.5)},
        without_shortcut={},
        without_shortcut_weights={},
        counts=(2,),
        methods=("exact",),
        readings=3,
    )
    section = jacobians_section(alone)
    assert section.sentence == "From input to output singular values lie between 1 and 1." and not section.rows
    assert dict(section.facts)["readings averaged"] == "3"


def test_parts_without_a_network_have_a_sentence_too():
    parts = jacobians(without_shortcut={}, without_shortcut_weights={})
    spans = {name: entry for name, entry in parts.singular_values.items() if name != "network"}
    lone = jacobians(singular_values=spans, without_shortcut={}, without_shortcut_weights={})
    assert jacobians_sentence(lone) == "Singular values of parts of the network were measured."
