"""`skiplens improve`: a network that trains better, the smallest change that does it, and the proof."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from skiplens.base.files import require_writable, write_content
from skiplens.base.settings import option
from skiplens.cli import console
from skiplens.cli.flags import with_settings
from skiplens.cli.forecast import OneForecastSettings


class ImproveSettings(OneForecastSettings):
    """One model, the training that is to get better, and what may be changed for it."""

    keep: Literal["outputs", "architecture", "nothing"] = option(
        "architecture",
        "outputs: change only how it is trained; architecture: also values of parameters; nothing: anything.",
    )
    cost: int = option(0, "Steps of all short trainings, 0 for 1000 or 2.5 trainings; a race of 7.5 comes after.")


@with_settings(ImproveSettings)
def improve(
    settings: ImproveSettings,
    out: Annotated[
        Path, typer.Option(help="Folder for the report, change.py and model.pt; a killed command goes on there.")
    ] = Path("runs/improve"),
    as_json: Annotated[bool, typer.Option("--json", help="Write what was found to standard output as JSON.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Print all that was tried, not only what was found.")] = False,
) -> None:
    """Find the change that makes a model train better, and prove it by training both.

    Example: [bold]skiplens improve zoo:mnist_residual --data mnist --steps 200[/]
    """
    import torch

    from skiplens import improvement
    from skiplens.cli.models import data_for, model_for
    from skiplens.improvement.improve import race_cost
    from skiplens.readings.file import to_json
    from skiplens.report import Report

    keep = None if settings.keep == "nothing" else settings.keep
    asked: dict[str, Any] = {**settings.asked(), "cost": settings.cost or None, "keep": keep}
    require_writable(out)
    model = model_for(settings)
    data = data_for(settings.model, settings, model)
    most = 10.0 if not settings.cost else (settings.cost + race_cost(settings.steps)) / settings.steps
    words = f"At most {most:.1f} trainings' worth of steps; what is finished is kept in {out / 'parts'}."
    console.err().print(words, markup=False)
    with console.progress_shown() as progress:
        better = improvement.improve(model, data, out=out, progress=progress, **asked)
    kept = any(change.name != "cool_down" for change in better.changes)  # what was raced, not the end of it alone
    whose, shown = "the network as it was", better.before
    if better.after and kept:
        whose, shown = "the changed network", better.after
    noted = {**shown.provenance.settings, "of": whose}
    expected = replace(shown, provenance=replace(shown.provenance, settings=noted))
    page = Report(settings.model, (better.reading, expected)).write(out)
    for name in ("change.py", "model.pt"):
        (out / name).unlink(missing_ok=True)  # of an earlier call
    if better.changes:
        write_content(out / "change.py", better.code + "\n")
        torch.save(better.model.state_dict(), out / "model.pt")
    if as_json:
        console.print_json(to_json(better.reading))
        return
    if full or not better.changes:
        console.print_table("What was tried", better.reading.rows())
    console.out().print(better.sentence, markup=False, style="bold")
    if better.changes:
        console.out().print(f"Why: {'; '.join(better.reading.reasons)}.", markup=False)
    code = f"The change as code is in {out / 'change.py'}, the changed weights in {out / 'model.pt'}. "
    console.out().print(f"{code * bool(better.changes)}The report is in {page}", markup=False)
    if better.changes and not full:
        console.out().print("--full prints all that was tried.", markup=False, style="dim")
