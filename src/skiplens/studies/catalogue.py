"""Which studies there are; one line for each."""

import importlib

from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.studies.study import Item, Study

MODULES = {
    "li2016_shortcuts": "skiplens.studies.li2016_shortcuts.study",
    "littwin2016_ensembles": "skiplens.studies.littwin2016_ensembles.study",
    "littwin2020_tangent": "skiplens.studies.littwin2020_tangent.study",
    "macdonald2023_regularity": "skiplens.studies.macdonald2023_regularity.study",
}
"""Where each study is; its module has `STUDY`, and is imported when the study is asked for."""


def studies() -> tuple[Study, ...]:
    """All studies."""
    return tuple(study(name) for name in MODULES)


def study(name: str) -> Study:
    """The study called `name`; an unknown name is an error that offers the nearest ones."""
    if name not in MODULES:
        raise InvalidInputError(f"There is no study {name!r}. {did_you_mean(name, [*MODULES, 'all'])}")
    return importlib.import_module(MODULES[name]).STUDY


def choose(target: str) -> tuple[tuple[Study, Item], ...]:
    """The items that `all`, `STUDY` or `STUDY/ITEM` names, each with its study."""
    if target == "all":
        return tuple((found, item) for found in studies() for item in found.items)
    name, _, item_name = target.partition("/")
    found = study(name)
    return tuple((found, item) for item in ((found.item(item_name),) if item_name else found.items))
