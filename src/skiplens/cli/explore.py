"""`skiplens explore`: the interactive page, on this machine."""

import contextlib
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from skiplens.cli import console


def explore(
    runs: Annotated[
        Path | None, typer.Argument(metavar="RUNS_DIR", help="Folder of reports and studies.", show_default=False)
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; others than this machine need a token.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="Where to listen; 8050 or the next free one if not given.", show_default=False)
    ] = None,
    no_browser: Annotated[
        bool,
        typer.Option("--no-browser", help="Do not open a browser; with a token none is opened.", show_default=False),
    ] = False,
) -> None:
    """Play with the theory and with your own runs in a browser.

    Example: [bold]skiplens explore runs[/]
    """
    from skiplens.explorer.serve import explorer

    page = explorer(runs, host, port)
    console.out().print(f"The explorer is at {page.link}", markup=False, soft_wrap=True)
    if page.link_elsewhere:
        console.out().print(f"From other machines: {page.link_elsewhere}", markup=False, soft_wrap=True)
    console.err().print("Press Ctrl-C to end it.", markup=False)
    if not no_browser and not page.guard.token:  # all users of a machine can see what is on a command line
        threading.Thread(target=webbrowser.open, args=(page.link,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        page.serve()
    console.err().print("The explorer has ended.", markup=False)
