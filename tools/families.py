"""Look at the families of `tests/families/table.py` with every lens and write `docs/families.md`.

`python -m tools.families` looks at all of them, `python -m tools.families ViT Mamba` at these again; what was seen of
the others stays. The numbers are kept in `tests/families/measured.json`.
"""

import json
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from tests.families.family import SAMPLES
from tests.families.table import FAMILIES

import skiplens as sl
from skiplens.base.errors import SkiplensError
from skiplens.report.lenses import LENSES
from skiplens.signal.structure import StructureReading

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "tests/families/measured.json", ROOT / "docs/families.md"

HEAD = f"""# Families of networks

Small configurations of Hugging Face `transformers` with random weights, in evaluation mode, on {SAMPLES} samples with
random targets. *Counted* are the residual blocks that a person counts in the modelling code of the configuration; `+`
stands before sums inside a block that are residual by construction. *Seconds* are those of one processor. *Lenses* says
how many of the nine that were asked finished: all but the forecast. *Findings* are those that are more than a note:
with weights of 0.02 and batch norms that saw no batch several of these networks do fade. *Seen* is the version and
the day of a row; verdicts may have changed since.

Written by `python -m tools.families`; the counts are held by `tests/families`.

| family | counted | found | seconds | lenses | verdict | findings | did not finish | seen |
|---|---|---|---|---|---|---|---|---|
"""


TAIL = """
## Findings that were checked without Skiplens

* SAM: its configuration starts the vision encoder with weights of 1e-10. In float32 the branches of both layers are
  exactly zero, and autograd alone gives their matrices a gradient of exactly zero (1e-33 to 1e-32 in float64). What
  is said to get no gradient has none: the output that is judged, `iou_scores`, does not read it.
* Marian, Pegasus, Perceiver (`features_alike`): with plain hooks one minus the cosine between two samples before the
  last layer is 0.0012, 0.0012 and 0.00034: embeddings of 0.02 beside positions of size one, or learned latents.
* MobileViT, MobileViTV2: what the last layer gets is exactly zero for all samples.
* BEiT: the gradient before the first block is 88 times that behind it, and no finding says so. All of it is at the
  class token, which starts at zero, so that the first layer norm divides by √ε (175.8, where other tokens have 0.32):
  one token of one block, not a growth with depth.
* BigBird, DPT, BLIP, FLAVA (`no_gradient`): in their modelling code the modules that are named (a pooler beside the
  one that the head has, the last norm and the first residual unit of the fusion, cross-attention without another
  model's states, projections for a contrastive loss) are built and not called on the way to the output.
* MobileNetV2 (`heavy_dropout`): the default of its configuration, `classifier_dropout_prob`, is 0.8, the share that
  is dropped.

## Still wrong, or not known

* Longformer, Informer and Nystromformer cannot be exported: shapes depend on values, or the library makes other masks
  in an export, which do not fit. Each layer of a list counts as one block where the code has two or three; a list of
  one layer shows none. The paths of LED cannot be followed through a write into a slice.
* Autoformer, which is not in the table, has 7 sums of blocks here and one of the trends of a decoder layer, which are
  moving averages of the stream: it counts as an eighth.
* In evaluation mode Reformer refuses to be differentiated, and RWKV overwrites what its gradient needs (in training
  mode neither does): layers, curvature and tangent kernel cannot look at them, and the report says why. RWKV is built
  here with `rescale_every=0`; with its default it divides its own weights when it is called, and is refused.
* In DETR and Table Transformer the first sum of the decoder adds to zeros. A person who counts it has one block more.
* RWKV (`lost_directions`, 2 of 128 singular values below 1e-6) was not checked in another way.
"""


def looked_at(name: str) -> dict[str, Any]:
    """What all lenses but the forecast say of one family."""
    family = FAMILIES[name]
    model, _ = family.build()
    lenses = [lens for lens in LENSES if lens != "forecast"]
    data, start = family.data(), time.process_time()
    try:
        report = sl.inspect(model, data, name=name, lenses=lenses)
    except SkiplensError as error:
        return {"refused": str(error)}
    seconds = time.process_time() - start
    structure = report.reading(StructureReading)
    parents = () if structure is None else structure.parents
    return {
        "blocks": [parents.count(None), len(parents) - parents.count(None)],
        "assumed": structure is not None and "assumed" in structure.shortcuts,
        "seen": f"{sl.__version__}, {time.strftime('%Y-%m-%d', time.gmtime())}",
        "seconds": round(seconds),
        "lenses": [len(report.readings), len(lenses)],
        "verdict": re.split("[.,:]", report.verdict)[0].lower(),
        "found": sorted({finding.rule for finding in report.findings if finding.severity != "note"}),
        # without the place in the code, which is a path of this machine
        "unfinished": {problem.lens: re.sub(r" \(at [^)]*\)", "", problem.message) for problem in report.problems},
    }


def page(rows: dict[str, dict[str, Any]]) -> str:
    """The page with the table."""
    lines = []
    for name, family in FAMILIES.items():
        row = rows.get(name, {"refused": "not looked at yet"})
        counted = _blocks(family.blocks, family.inner)
        if "refused" in row:
            lines.append(f"| {name} | {counted} | – | – | – | – | – | all: {row['refused']} | – |")
            continue
        found = _blocks(*row["blocks"]) + " (assumed from its modules)" * row["assumed"]
        names = (", ".join(f"`{rule}`" for rule in row["found"]), ", ".join(sorted(row["unfinished"])))
        finished = "{} of {}".format(*row["lenses"])
        cells = (name, counted, found, str(row["seconds"]), finished, row["verdict"], *names, row.get("seen", "before"))
        lines.append(f"| {' | '.join(cell or '–' for cell in cells)} |")
    return HEAD + "\n".join(lines) + "\n\n" + _reasons(rows)


def _blocks(outermost: int, inner: int) -> str:
    return f"{outermost} + {inner}" if inner else str(outermost)


def _reasons(rows: dict[str, dict[str, Any]]) -> str:
    """Why lenses did not finish, one line for each reason."""
    said: dict[str, list[str]] = {}
    for name, row in rows.items():
        for lens, message in row.get("unfinished", {}).items():
            said.setdefault(message.partition(". ")[0], []).append(f"{name} ({lens})")
    lines = [f"* {', '.join(where)}: {reason.rstrip('.')}." for reason, where in sorted(said.items())]
    return "## Why\n\n" + "\n".join(lines) + "\n" + TAIL


def main(names: list[str]) -> None:
    """Look at these families, or at all, and write the page."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    for name in names or FAMILIES:
        rows[name] = looked_at(name)
        rows = {known: rows[known] for known in FAMILIES if known in rows}
        RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")
        PAGE.write_text(page(rows), "utf-8")
        sys.stdout.write(f"{name}: {rows[name]}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
