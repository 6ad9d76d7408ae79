"""`skiplens forecast` and `skiplens rank`: will it train, and which of these trains best?"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from skiplens.base.files import require_writable, write_content
from skiplens.base.settings import option
from skiplens.cli import console
from skiplens.cli.flags import LOSS_HELP, DataSettings, ModelSettings, with_settings


class ForecastSettings(DataSettings):
    """What training is forecast."""

    loss: str | None = option(None, LOSS_HELP)
    optimizer: str = option("adam", "sgd, adam, adamw, or path/file.py:function from parameters to an optimizer.")
    steps: int = option(400, "Steps of the training that is forecast.")
    cost: int = option(70, "Steps that the forecast itself may take; 0 judges without a step.")
    seed: int = option(0, "Names every random draw, and the weights of a zoo network.")

    def asked(self) -> dict[str, Any]:
        """The keywords of `forecast` and `rank`."""
        from skiplens.base.import_by_name import import_by_name
        from skiplens.cli.models import loss_named

        optimizer = import_by_name(self.optimizer) if ":" in self.optimizer else self.optimizer
        named = {"steps": self.steps, "cost": self.cost, "seed": self.seed}
        return {"loss": loss_named(self.loss), "optimizer": optimizer, **named}


class OneForecastSettings(ForecastSettings, ModelSettings):
    """One model, and what training of it is forecast."""


@with_settings(OneForecastSettings)
def forecast(
    settings: OneForecastSettings,
    out: Annotated[Path | None, typer.Option(help="Folder for forecast.json; a killed forecast goes on there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the forecast to standard output as JSON.")] = False,
) -> None:
    """Say whether a model will train, how low, and at which rate.

    Example: [bold]skiplens forecast zoo:mnist_residual --data mnist --optimizer sgd[/]
    """
    from skiplens import trainability
    from skiplens.cli.models import data_for, model_for
    from skiplens.readings.file import to_json

    asked = settings.asked()
    if out is not None:
        require_writable(out)
        asked["journal"] = out / "journal"
    model = model_for(settings)
    data = data_for(settings.model, settings, model)
    with console.progress_shown() as progress:
        found = trainability.forecast(model, data, progress=progress, **asked)
    if out is not None:
        write_content(out / "forecast.json", json.dumps(to_json(found), indent=1, allow_nan=False, ensure_ascii=False))
    if as_json:
        console.print_json(to_json(found))
        return
    console.out().print(found.sentence, markup=False, style="bold")
    if found.cause is not None:
        console.print_findings([(found.cause.severity, found.cause.sentence, found.cause.change)])
    for note in found.notes:
        console.out().print(note, markup=False)


@with_settings(ForecastSettings)
def rank(
    settings: ForecastSettings,
    models: Annotated[list[str], typer.Argument(help="Two or more models, named as for inspect.")],
    as_json: Annotated[bool, typer.Option("--json", help="Write the ranking to standard output as JSON.")] = False,
) -> None:
    """Put models in the order of what they are expected to learn, best first.

    Example: [bold]skiplens rank zoo:mnist_residual zoo:default --data mnist[/]
    """
    from skiplens import trainability
    from skiplens.cli.models import build_model, data_for

    asked = settings.asked()
    built = {spec: build_model(spec, settings.seed) for spec in models}
    data = {spec: data_for(spec, settings, built[spec]) for spec in models}
    with console.progress_shown() as progress:
        ranking = trainability.rank(built, data, progress=progress, **asked)
    if as_json:
        console.print_json(ranking.to_json())
        return
    console.print_table("Ranking", ranking.rows())
    for name, reason in ranking.failed.items():
        console.complain(f"{name}: {reason}")
