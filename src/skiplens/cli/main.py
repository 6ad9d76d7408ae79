"""The command line: one thin file per verb."""

import functools
import gc
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

import typer

from skiplens.base.errors import ModelSpecError, SkiplensError
from skiplens.base.version import VERSION
from skiplens.cli import compare, console, data, explore, forecast, improve, inspect, reproduce, studies, zoo

BAD_INPUT, INTERRUPTED = 2, 130
ENDED_FROM_THE_KEYBOARD = ("explore",)  # verbs that have no other end

app = typer.Typer(
    name="skiplens",
    help="See what skip connections do to your network.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Exit status: 0 done, 1 a check failed, 2 bad input, 130 interrupted.",
)

VERBS = (
    inspect.inspect,
    forecast.forecast,
    forecast.rank,
    improve.improve,
    compare.compare,
    zoo.zoo,
    studies.studies,
    reproduce.reproduce,
    explore.explore,
)


def _without_exit(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb; where code of the user's ends the process, that is told instead."""

    @functools.wraps(verb)
    def command(**given: object) -> None:
        try:
            verb(**given)
        except SystemExit as error:
            raise ModelSpecError(f"The model, data or loss ended the process with exit({error.code!r}).") from error

    return command


for verb in VERBS:
    app.command()(_without_exit(verb))

app.add_typer(data.app, name="data")


def _show_version(wanted: bool) -> None:
    if wanted:
        console.out().print(f"skiplens {VERSION}")
        raise typer.Exit()


@app.callback()
def skiplens(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    """See what skip connections do to your network."""


def main() -> None:
    """Run the command line; an error that is meant for a person is shown as one sentence."""
    console.survive_any_encoding()
    console.INTERRUPTS.clear()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded: threads that wait do not spin
    gc.set_threshold(700, 10, 100)  # looking for garbage in all of torch so often took 1 s of an inspect
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # else it is ignored, or somebody else's
        signal.signal(signal.SIGINT, _interrupted)
    try:
        app(prog_name="skiplens")  # also where it is run as python -m skiplens
    except SkiplensError as error:
        console.complain(str(error))
        sys.exit(BAD_INPUT)
    except (OSError, MemoryError) as error:  # a file or a machine that does not do what was asked
        console.complain(f"{type(error).__name__}: {error}.")
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        console.complain("interrupted.")
        sys.exit(INTERRUPTED)
    except SystemExit:
        if console.INTERRUPTS and sys.argv[1] not in ENDED_FROM_THE_KEYBOARD:
            sys.exit(INTERRUPTED)
        raise
    finally:
        signal.signal(signal.SIGINT, handler)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Remember it, so that a verb that shows what was finished ends with the right status all the same."""
    console.INTERRUPTS.append(number)
    raise KeyboardInterrupt
