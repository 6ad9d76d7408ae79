"""`skiplens studies`: every figure, table and theorem that can be reproduced."""

from typing import Annotated

import typer

from skiplens.cli import console


def studies(as_json: Annotated[bool, typer.Option("--json", help="Write the list as JSON.")] = False) -> None:
    """List the figures, tables and theorems of the papers that can be reproduced.

    Example: [bold]skiplens studies[/], then [bold]skiplens reproduce littwin2020_tangent/fig2[/]
    """
    from skiplens.papers.study import studies as all_studies

    rows = [
        {"item": f"{study.name}/{item.name}", "about": item.title, "claims": len(item.claims)}
        for study in all_studies()
        for item in study.items
    ]
    if as_json:
        console.print_json(rows)
        return
    for study in all_studies():
        own = [row for row in rows if str(row["item"]).startswith(f"{study.name}/")]
        console.print_table(f"{study.card.authors} {study.card.year}: {study.card.title}", own)
        console.out().print()
