"""Inspect a model from Python: one report, written to disk, and its numbers at hand."""

import tempfile
from pathlib import Path

import skiplens as sl
from skiplens import data, zoo
from skiplens.signal import StructureReading

model = zoo.build("digits_resnet", seed=0)
report = sl.inspect(model, data.load("sample"), lenses=["structure"], name="my network")

for section in report.sections():
    print(section.sentence)
structure = report.reading(StructureReading)
print("share of parameters in branches:", round(structure.branch_parameters.sum().item() / structure.parameters, 3))

with tempfile.TemporaryDirectory() as folder:
    page = report.write(folder)
    print("written:", ", ".join(sorted(path.name for path in Path(folder).iterdir())))
    print(f"{page.name} has {page.stat().st_size:,} bytes and needs no other file")
