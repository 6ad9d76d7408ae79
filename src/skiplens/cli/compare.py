"""`skiplens compare`: several models side by side."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skiplens.base import InvalidInputError, option
from skiplens.base.files import require_writable
from skiplens.cli import console
from skiplens.cli.flags import LOSS_HELP, DataSettings, with_settings
from skiplens.cli.inspect import FORCE_HELP

if TYPE_CHECKING:
    from torch import nn

    from skiplens.report.comparison import Comparison

NO_WEIGHTS = "none"


class CompareSettings(DataSettings):
    """How to compare."""

    weights: tuple[str, ...] = option((), "Weights of each model, separated by commas; none for a fresh one.")
    lens: tuple[str, ...] = option(
        (), "Lenses, separated by commas; chosen by the size of the models if none is named."
    )
    loss: str | None = option(None, LOSS_HELP)
    draws: int | None = option(None, "How often each model is drawn; 5 times, or 3 times if it is large.")
    seed: int = option(0, "The first of the seeds.")


@with_settings(CompareSettings)
def compare(
    settings: CompareSettings,
    models: Annotated[list[str], typer.Argument(help="Two or more models, named as for inspect.")],
    out: Annotated[Path, typer.Option(help="Folder for comparison.html, comparison.json and figures/.")] = Path(
        "runs/compare"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Write the numbers to standard output as JSON.")] = False,
    force: Annotated[bool, typer.Option("--force", help=FORCE_HELP)] = False,
    full: Annotated[bool, typer.Option("--full", help="Print all numbers, not only those that differ.")] = False,
) -> None:
    """Compare models: each is drawn several times, so that chance is told from difference.

    Example: [bold]skiplens compare zoo:preact_resnet18 zoo:preact_resnet18_avgskip[/]
    """
    from skiplens import report as reports
    from skiplens.cli.models import data_for, loss_named

    if settings.weights and len(settings.weights) != len(models):
        raise InvalidInputError(
            f"--weights names {len(settings.weights)} files for {len(models)} models; give one for each, and "
            f"{NO_WEIGHTS!r} for a model that is drawn."
        )
    loss = loss_named(settings.loss)
    require_writable(out)
    files = settings.weights or (NO_WEIGHTS,) * len(models)
    names = [  # a model that comes again gets a number
        f"{name} ({models[:place].count(name) + 1})" if models.count(name) > 1 else name
        for place, name in enumerate(models)
    ]
    builders = {name: _builder(spec, file) for name, spec, file in zip(names, models, files, strict=True)}
    data = {name: data_for(spec, settings) for name, spec in zip(names, models, strict=True)}
    with console.progress_shown() as progress:
        comparison = reports.compare(
            builders, data, lenses=settings.lens, loss=loss, draws=settings.draws, seed=settings.seed, progress=progress
        )
    page = comparison.write(console.place_of(out, force, lambda folder: (folder / "comparison.json").exists()))
    if as_json:
        console.print_json(comparison.to_json())
    else:
        _summarise(comparison, page, full)


def _builder(spec: str, weights: str) -> "Callable[[int], nn.Module] | nn.Module":
    from skiplens.cli.models import build_model, load_weights
    from skiplens.report.comparison import drawn_by_seed

    if weights != NO_WEIGHTS:
        return load_weights(build_model(spec), weights)
    if spec.startswith(("zoo:", "hf:", "timm:", "torchvision:")):
        return lambda seed: build_model(spec, seed)
    return drawn_by_seed(lambda: build_model(spec))


def _summarise(comparison: "Comparison", page: Path, full: bool) -> None:
    console.out().print(comparison.verdict, markup=False, style="bold")
    for section in comparison.sections():
        alike = {n.label for n in comparison.numbers if {"higher", "lower", "not tested"}.isdisjoint(n.verdicts)}
        if rows := [row for row in section.rows if full or row["number"] not in alike]:
            console.print_table(section.title, rows)
    for model in comparison.contenders:
        console.out().print(f"{model.name}: {model.reports[0].verdict} {model.note}".strip(), markup=False)
    for note in comparison.notes:
        console.out().print(note, markup=False)
    for problem in comparison.problems:
        console.complain(f"{problem.lens}: {problem.message}")
    if not full:
        console.out().print("--full prints all numbers, also those that do not differ.", markup=False, style="dim")
    console.out().print(f"The comparison is in {page}", markup=False)
