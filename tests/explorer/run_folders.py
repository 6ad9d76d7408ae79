"""Folders of runs made by hand: as `skiplens inspect` and `skiplens reproduce` write them, without their pictures."""

import json
from pathlib import Path

from skiplens.papers.reproduction import ReproductionEffort, csv_text, reproduce, write_folder
from skiplens.report import compare
from skiplens.report.inspection import Report
from tests.papers.small_study import study
from tests.report.networks import build, data
from tests.report.readings import paths
from tests.sample_readings import jacobians, structure

HOSTILE = "<img src=x onerror=alert(1)> , & ' \" =1+1 %2e%2e"
"""The name of a folder that tries everything."""


def report(title: str = "Net", energy: tuple[float, ...] = (1.0, 4.0, 6.0, 4.0, 1.0), **options) -> Report:
    names = tuple(f"b{index}" for index in range(len(energy) - 1))
    return Report(title, (structure(), paths(list(energy), block_names=names), jacobians()), **options)


def write_report(folder: Path, made: Report) -> Path:
    folder.mkdir(parents=True)
    (folder / "readings.json").write_text(json.dumps(made.to_json()))
    return folder


def write_study(folder: Path, seed: int = 0) -> Path:
    small = study()
    made = reproduce([(small, small.items[0])], folder, ReproductionEffort("smoke", seed))
    (folder / "verdicts.json").write_text(json.dumps([verdict.to_json() for verdict in made.verdicts]))
    (folder / "environment.json").write_text(json.dumps({"preset": "smoke", "seed": seed, "torch": "2"}))
    (folder / "tables").mkdir()
    (folder / "tables" / "small_coin_heads.csv").write_text(csv_text(made.results[0].tables[0]))
    (folder / "tables" / "small_coin_grid.csv").write_text("depth,width,loss\n1,10,4\n2,10,2\n1,20,3\n2,20,1\n3,20,\n")
    return folder


def write_gallery(folder: Path) -> Path:
    small = study()
    write_folder(reproduce([(small, small.items[0])], folder, ReproductionEffort("smoke", 0)), folder)
    return folder


def write_comparison(folder: Path) -> Path:
    models = {"one": build(0.1), "two": build(1.0)}
    compare(models, data(), lenses=["structure"], draws=2).write(folder)
    return folder
