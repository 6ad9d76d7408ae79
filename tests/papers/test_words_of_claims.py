"""What claims and pages say fits the numbers beside them, and captions say what is drawn whatever the data."""

import json
import re
from pathlib import Path

import pytest
import torch
from tools.kept_readings import archive, unpack

from skiplens.papers.li2016_shortcuts import fig3_fig4
from skiplens.papers.li2016_shortcuts.fig3_fig4 import draw_fig3
from skiplens.papers.littwin2016_ensembles import depth_during_training
from skiplens.papers.reproduction import shipped_record
from skiplens.papers.study import choose, studies
from skiplens.readings.store import Store
from tests.papers.li2016_shortcuts.fake_readings import fake

ROOT = Path(__file__).parents[2]


def printed(place: str) -> str:
    target, _, name = place.rpartition("/")
    ((_, item),) = choose(target)
    (claim,) = [claim for claim in item.claims if claim.name == name]
    return claim.paper


@pytest.mark.parametrize(
    "place",
    [
        *(f"li2016_shortcuts/fig7/{name}" for name in ("high_rate", "rate_ratio")),
        *(f"li2016_shortcuts/fig8/{name}" for name in ("low", "half", "half_from_16")),
        "li2016_shortcuts/fig5/much_smaller_when_large",
        *(f"li2016_shortcuts/thm1/{name}" for name in ("fit", "lemma1")),
        *(f"li2016_shortcuts/thm2/{name}" for name in ("stationary_point", "zero_hessian", "copies")),
    ],
)
def test_what_is_compared_as_a_logarithm_is_said_as_one(place):
    assert "log10" in printed(place)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("li2016_shortcuts/fig7/xavier", "decades"),
        ("li2016_shortcuts/fig4/orthogonal", "factor > 1"),
        ("li2016_shortcuts/fig4/one_shortcut", "factor > 1"),
        ("li2016_shortcuts/fig4/xavier", "log10 a layer"),
        ("li2016_shortcuts/fig3/linear_end", "falls with depth"),
        ("li2016_shortcuts/fig3/relu_end", "falls with depth"),
        ("li2016_shortcuts/thm2/relu", "shown if corrected"),
        ("littwin2016_ensembles/fig1a/formula", "deviation 0"),
        ("littwin2020_tangent/thm1/diagonal", "deviation 0"),
        ("littwin2020_tangent/thm1/convergence", "slope"),
        *((f"littwin2020_tangent/{name}", "ratio − 1") for name in ("fig4/second", "thm3/resnet_second")),
        ("littwin2016_ensembles/fig1d/first_layer", "> 0"),
        ("littwin2016_ensembles/fig1d/first_layer_centred", "> 0"),
        ("macdonald2023_regularity/fig2/block1", "we ask for ≥ 2"),
        ("macdonald2023_regularity/thm5_1/worst_case", "log₁₀ ratio"),
        ("macdonald2023_regularity/thm5_1/any_start_square", "shown if corrected"),
    ],
)
def test_what_is_printed_has_the_unit_of_our_number(place, words):
    assert words in printed(place)


def norms(exponent: float) -> list:
    epochs = torch.tensor([0, *fig3_fig4.CLAIM_EPOCHS])
    return [
        fake(
            "norm_history",
            {"activation": activation, "depth": depth},
            epoch=epochs,
            norm=torch.full((len(epochs), 3), 4.0 * depth**exponent),
        )
        for activation in ("identity", "relu")
        for depth in (4, 16)
    ]


def test_the_band_of_the_final_norms_is_told():
    explanation = fig3_fig4.judge_end(norms(-0.4), "identity").explanation
    assert "We ask for an exponent from -0.5 to -0.3; theorem 1's limit is -1/2." in explanation


def test_captions_say_what_is_drawn_whatever_the_data():
    falling, rising = ([figure.caption for figure in draw_fig3(norms(power))] for power in (-0.5, 0.5))
    assert falling == rising
    assert "smaller" not in rising[0]


def test_growth_is_not_called_linear_before_it_is_seen():
    square = [
        fake(
            "initial_spectrum",
            {"family": "orthogonal", "depth": depth, "replicate": replicate},
            condition_number=torch.tensor(float(depth) ** 2),
        )
        for depth in (4, 8, 16, 32)
        for replicate in range(3)
    ]
    judged = fig3_fig4.linear_growth(square, "orthogonal")
    assert judged.verdict == "differs" and "we ask for linear growth, 1.9 to 2.3" in judged.explanation
    assert "it grows linearly" not in judged.explanation


def test_deeper_conv_nets_are_those_that_were_measured():
    readings = [
        fake(
            "images",
            {"network": "conv", "normalised": True, "images": "digits", "blocks": 6, "replicate": replicate},
            mean_depth=torch.tensor([1.0, 2.0 + 0.01 * replicate]),
            accuracy=torch.tensor(0.9),
        )
        for replicate in range(5)
    ]
    judged = depth_during_training.judge_deeper(readings, "conv", True)
    assert judged.verdict == "reproduced" and "other small conv nets got shallower" in judged.explanation


@pytest.mark.parametrize("page", ["results/README.md", "docs/studies.md"])
def test_every_claim_that_differs_is_named_with_its_number(page):
    text = (ROOT / page).read_text("utf-8")
    entries = json.loads((ROOT / "results/laptop/verdicts.json").read_text("utf-8"))
    assert len(entries) == sum(len(item.claims) for study in studies() for item in study.items)
    for entry in (entry for entry in entries if entry["verdict"] in ("differs", "opposite")):
        name = f"`{entry['study']}/{entry['item']}/{entry['claim']}`"
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {name}")]
        number, *width = re.findall(r"[\d.]+", row.split("|")[3].replace("−", "-"))
        places = len(number.partition(".")[2])
        assert float(number) == pytest.approx(abs(entry["ours"]), abs=0.51 * 10**-places)
        assert bool(width) == (entry["uncertainty"] > 0)


def changed_rules() -> list[tuple[str, str]]:
    """What the rows of the page name, in full, each with the seeds that were drawn afterwards."""
    known = {
        study.name: {item.name: {claim.name for claim in item.claims} for item in study.items} for study in studies()
    }
    text = (ROOT / "docs/judging.md").read_text("utf-8").partition("## Rules changed after numbers were seen")[2]
    found = []
    for line in (line for line in text.splitlines() if line.startswith(("| `", "| replicates"))):
        cells, study, item = line.split("|"), "", ""
        for name in re.findall(r"`([a-z0-9_/]+)`", cells[1]):
            *before, last = name.split("/")
            if before and before[0] in known:
                study, item = before[0], (before[1:] or [last])[0]
            elif before:
                item = before[0]
            elif last in known[study]:
                item = last
            assert last == item or last in known[study][item], name
            found.append((f"{study}/{item}/{'' if last == item else last}", cells[-2].strip()))
    return found


def test_the_list_of_changed_rules_names_what_there_is_and_the_seeds_drawn_afterwards():
    rows = changed_rules()
    assert len(rows) >= 30 and all(seeds for _, seeds in rows)
    named = dict(rows)
    for name in ("deeper", "turning_point", "half_from_16"):
        assert any(row == f"li2016_shortcuts/fig8/{name}" and seeds.startswith("5") for row, seeds in rows)
    assert named["macdonald2023_regularity/fig2/composite"] == "3 and 4"


def test_the_words_of_the_laptop_are_those_of_its_kept_readings_and_of_the_record(tmp_path):
    """Those of figures are kept; what is not there, because it is large or of images, is left out."""
    unpack(archive("laptop"), tmp_path)
    store, record, looked_at = Store(tmp_path / "store"), shipped_record()["laptop"], set()
    entries = json.loads((ROOT / "results/laptop/verdicts.json").read_text("utf-8"))
    said = {f"{entry['study']}/{entry['item']}/{entry['claim']}": entry for entry in entries}
    for study, item in choose("all"):
        runs = {run.key: run for run in item.runs("laptop", 0)}
        if not all(store.path(key).exists() for key in runs):
            continue
        readings = [store.load(key) for key in runs]
        for claim in item.claims:
            name = f"{study.name}/{item.name}/{claim.name}"
            found = claim.judge(readings)
            assert found.verdict == said[name]["verdict"], name
            assert record[name] in (found.verdict, "varies"), name
            if found.ours is not None:
                assert found.ours == pytest.approx(said[name]["ours"], rel=1e-3, abs=1e-9), name
            looked_at.add(f"{study.name}/{item.name}")
    assert len(looked_at) >= 12
