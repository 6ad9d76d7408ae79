"""Look at ten networks and write `docs/gallery.md`: `python -m tools.gallery [--measure [NAME ...]]`.

With `--measure` they are looked at again (four minutes), with all lenses at the network of the live report, and their
readings are kept in `docs/live`; without it the page is written from what is kept. The site draws every network, and
its report, from the same readings.
"""

import gzip
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import skiplens as sl
from skiplens import data, zoo
from skiplens.base.optional_imports import optional_import
from skiplens.paths.reading import PathSpectrum
from skiplens.report.inspection import Report
from skiplens.report.lenses import section_of
from skiplens.signal.layers import LayerStates
from skiplens.signal.reading import SignalReading
from skiplens.signal.structure import StructureReading

DOCS = Path(__file__).parents[1] / "docs"
PAGE, SAMPLES, LIVE = DOCS / "gallery.md", 8, "report"
LENSES = ("structure", "signal", "layers", "paths")
TOLD = (StructureReading, SignalReading, PathSpectrum)
CHAIN = (StructureReading, LayerStates)  # there is nothing to follow from block to block
HEAD = f"""# Gallery

Ten networks as they are before training, with random weights. The shortcut runs straight on; each branch leaves it and
joins it again, as thick as its share of the sum. Above runs the size of the signal, below that of the gradient on its
way back, on logarithmic scales; at the right stands how many branches the signal passes. □ is a shortcut that projects,
△ one that pools, ◇ one that does something else, such as a norm after the sum.

Under a picture stands what one learns from it, then what the lenses said; press it for the report. Hugging Face
families are built from their configuration, with the depth of the published network and a small width; images are
{SAMPLES} embedded digits, words are drawn at random. `python -m tools.gallery` writes this page.
"""


def words(count: int = 256) -> torch.Tensor:
    """Tokens at random."""
    return torch.randint(3, count, (SAMPLES, 16), generator=torch.Generator().manual_seed(0))


def digits() -> torch.Tensor:
    """The first embedded digits."""
    return data.sample().first(SAMPLES).pixels()


def pictures() -> torch.Tensor:
    """Digits in three channels, in the middle of 32 × 32 pixels."""
    return nn.functional.pad(digits(), (2, 2, 2, 2)).expand(-1, 3, -1, -1).contiguous()


@dataclass(frozen=True)
class Shown:
    """A network of the gallery: what to call it, what it is, and how to build it."""

    title: str
    what: str
    family: str = ""  # a class of Hugging Face; a network of the zoo is built by its name
    options: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[[], torch.Tensor] = pictures


SMALL = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 12, "num_attention_heads": 4}
TEXT = {"vocab_size": 256, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "max_position_embeddings": 32}
NETWORKS = {
    "digits_resnet": Shown(
        "A small residual network", "`zoo:digits_resnet`: eight blocks with norms inside of them.", inputs=digits
    ),
    "mnist_chain": Shown(
        "The same kind without shortcuts",
        "`zoo:mnist_chain`: convolutions and norms, one after another.",
        inputs=digits,
    ),
    "ensemble_resnet": Shown(
        "A residual network without norms",
        "`zoo:ensemble_resnet` with 12 matrices, fully connected.",
        options={"depth": 12, "width": 64, "input_features": 784, "classes": 10},
        inputs=lambda: digits().flatten(1),
    ),
    "resnet50": Shown(
        "ResNet-50",
        "Hugging Face `ResNet`, bottlenecks in stages of 3, 4, 6 and 3; a ReLU after every sum.",
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [16, 32, 64, 128], "depths": [3, 4, 6, 3], "num_labels": 10},
    ),
    "convnext": Shown(
        "ConvNeXt-T",
        "Hugging Face `ConvNext`, stages of 3, 3, 9 and 3 blocks, each branch scaled by 10⁻⁶ at the start.",
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16, 32, 64], "depths": [3, 3, 9, 3], "num_labels": 10},
    ),
    "mobilenet_v2": Shown(
        "MobileNetV2",
        "Hugging Face `MobileNetV2`: a shortcut only where the stride is 1 and the widths agree.",
        "MobileNetV2ForImageClassification",
        {"depth_multiplier": 0.35, "num_labels": 10, "min_depth": 8, "finegrained_output": True},
    ),
    "vit": Shown(
        "ViT, 12 layers",
        "Hugging Face `ViT`: attention and MLP, each behind a norm of its own.",
        "ViTForImageClassification",
        {**SMALL, "image_size": 32, "patch_size": 8, "num_labels": 10},
    ),
    "gpt2": Shown(
        "GPT-2, 12 layers",
        "Hugging Face `GPT2`: norms before the branches, their last matrices scaled down by the depth.",
        "GPT2LMHeadModel",
        {
            "vocab_size": 256,
            "n_positions": 32,
            "n_embd": 48,
            "n_layer": 12,
            "n_head": 4,
            "bos_token_id": 0,
            "eos_token_id": 1,
            **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
        },
        words,
    ),
    "llama": Shown(
        "LLaMA, 12 layers",
        "Hugging Face `Llama`: RMS norms before the branches, a gated MLP.",
        "LlamaForCausalLM",
        {**SMALL, **TEXT, "num_key_value_heads": 2},
        words,
    ),
    "bert": Shown(
        "BERT, 12 layers",
        "Hugging Face `Bert`: a norm after every sum, so that the shortcut passes through it too.",
        "BertForMaskedLM",
        {**SMALL, **TEXT, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        words,
    ),
}
LESSONS = {
    "digits_resnet": "Norms inside the branches hold each of them to about the size of what its shortcut carries: the "
    "network acts half as deep as it is.",
    "mnist_chain": "Without shortcuts there is one path: what a layer loses is lost for all behind it. So the lens of "
    "layers looks where the others have no blocks to look at.",
    "ensemble_resnet": "Without norms each branch adds the same share of what comes in, so the signal grows by the "
    "same factor at every block. Scaling the branches by the depth mends it.",
    "resnet50": "The shortcut is straight within a stage only, and projects into the next one. Strong branches make "
    "the network act two thirds as deep as it is, and let the gradient grow though the signal does not.",
    "convnext": "Branches scaled by 10⁻⁶ add nothing at first: 18 blocks act like none, and training has to switch "
    "each of them on. The gradient changes in steps, at the layers between stages, which no shortcut passes by.",
    "mobilenet_v2": "Of its 17 bottlenecks 10 have a shortcut. Where the stride is 2 or the width changes, the signal "
    "has one way only.",
    "vit": "Attention and MLP are blocks of their own: 12 layers are 24 blocks. Small weights behind a norm make a "
    "start that acts shallow.",
    "gpt2": "Last matrices that are scaled down by the depth hold signal and gradient at their size over 24 blocks; "
    "the start is nearly an identity.",
    "llama": "Without that scaling the same design lets the signal grow a little, and acts about ten times as deep as "
    "GPT-2 does here.",
    "bert": "A norm after every sum rescales shortcut and branch alike, so that sizes hold; small weights make the "
    "branches a small part of each sum.",
}
"""What one learns from each."""


def measured(name: str) -> Report:
    """What the quick lenses say of a network; all of them, of that of the live report."""
    if name == LIVE:
        return sl.inspect(zoo.build(zoo.DEFAULT), data.load("sample"), name="zoo:default")
    shown, inputs = NETWORKS[name], NETWORKS[name].inputs()
    if not shown.family:
        return sl.inspect(zoo.build(name, **shown.options), inputs, lenses=LENSES, name=shown.title, samples=SAMPLES)
    kind = getattr(optional_import("transformers", "the gallery"), shown.family)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind(kind.config_class(**shown.options))
    key = "pixel_values" if inputs.is_floating_point() else "input_ids"
    return sl.inspect(model, {key: inputs}, lenses=LENSES, name=shown.title, samples=SAMPLES)


def keep(name: str, report: Report) -> None:
    """Pack the readings beside those of the others, the same bytes for the same readings."""
    text = json.dumps(report.to_json(), allow_nan=False, ensure_ascii=False)
    (DOCS / "live" / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def kept(name: str) -> Report:
    """The report whose readings are kept."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "readings.json"
        path.write_bytes(gzip.decompress((DOCS / "live" / f"{name}.json.gz").read_bytes()))
        return Report.load(path)


def page() -> str:
    """The page, from the readings that are kept."""
    parts = [HEAD]
    for name, shown in NETWORKS.items():
        report = kept(name)
        picture = f"[![{shown.title}: {report.verdict}](live/{name}.svg)](live/{name}.html)"
        parts.append(
            f"## {shown.title}\n\n{shown.what}\n\n{picture}\n\n{LESSONS[name]}\n\n" + "\n".join(learnt(report)) + "\n"
        )
    return "\n".join(parts)


def learnt(report: Report) -> list[str]:
    """What the lenses and the rules say, a line each."""
    structure = report.reading(StructureReading)
    told = TOLD if structure is not None and structure.block_names else CHAIN
    readings = [reading for kind in told if (reading := report.reading(kind)) is not None]
    seen = [f"* {section_of(reading).sentence}" for reading in readings]
    found = [finding for finding in report.findings if finding.severity != "note"][:2]
    return [
        *seen,
        *(f"* **{finding.severity.capitalize()}:** {finding.sentence} {finding.change}" for finding in found),
    ]


def main(arguments: list[str]) -> None:
    """Look at the networks that are named, or at all, if asked to; write the page."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if arguments[:1] == ["--measure"]:
        for name in arguments[1:] or (LIVE, *NETWORKS):
            keep(name, measured(name))
            sys.stdout.write(f"{name}: {kept(name).verdict}\n")
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
