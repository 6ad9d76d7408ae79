"""`skiplens zoo`: the networks of the four papers."""

import dataclasses
from typing import Annotated

import typer

from skiplens.cli import console


def zoo(as_json: Annotated[bool, typer.Option("--json", help="Write the list as JSON.")] = False) -> None:
    """List the networks of the four papers, with parameters and depth.

    Example: [bold]skiplens zoo[/], then [bold]skiplens inspect zoo:mnist_residual[/]
    """
    from skiplens import zoo as networks

    rows = [dataclasses.asdict(row) for row in networks.summary()]
    if as_json:
        console.print_json(rows)
        return
    for row in rows:
        row["input"] = "×".join(map(str, row.pop("input_shape")))
    console.print_table("Networks of the zoo; use them as zoo:NAME, with options as zoo:NAME,option=value", rows)
