"""`skiplens data list|get`: the data sets and where they are."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from skiplens.cli import console

Json = Annotated[bool, typer.Option("--json", help="Write the answer as JSON.")]
Root = Annotated[Path | None, typer.Option(help="A folder that may hold the files already; else SKIPLENS_DATA.")]

app = typer.Typer(
    no_args_is_help=True, help="List the data sets, or get one. Example: [bold]skiplens data get mnist[/]"
)


@app.command("list")
def list_(root: Root = None, as_json: Json = False) -> None:
    """List the data sets, where each is, and what fetching it would load.

    Example: [bold]skiplens data list[/]
    """
    from skiplens import data
    from skiplens.base.memory import readable

    rows = [dataclasses.asdict(row) for row in data.available(root)]
    if as_json:
        console.print_json(rows)
        return
    for row in rows:
        row["shape"] = "×".join(map(str, row["shape"]))
        row["download"] = readable(row.pop("download_bytes"))
    console.print_table("Data sets", rows)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, cifar10 or cifar100.")],
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Get a data set: from your folder, the cache or its authors; checksummed.

    Example: [bold]skiplens data get mnist[/]
    """
    from skiplens import data

    with console.progress_shown() as progress:
        splits = {split: data.get(name, root, split, progress) for split in ("train", "test")}
    counts = {split: len(images) for split, images in splits.items()}
    if as_json:
        console.print_json({"name": name, "shape": splits["train"].shape, **counts})
    else:
        shape = "×".join(map(str, splits["train"].shape))
        console.out().print(
            f"{name}: {counts['train']:,} training and {counts['test']:,} test images of {shape}, ready."
        )
