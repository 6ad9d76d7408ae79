"""All lenses by name, in the order in which a report shows them."""

from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.lenses.curvature import CurvatureLens
from skiplens.lenses.jacobians import JacobiansLens
from skiplens.lenses.jacobians.hypotheses.lens import ConvergenceLens
from skiplens.lenses.lens import Lens
from skiplens.lenses.paths import PathsLens
from skiplens.lenses.signal import SignalLens
from skiplens.lenses.structure import StructureLens
from skiplens.lenses.tangent import TangentLens

LENSES: dict[str, type[Lens]] = {
    lens.name: lens
    for lens in (
        StructureLens,
        SignalLens,
        PathsLens,
        CurvatureLens,
        JacobiansLens,
        ConvergenceLens,
        TangentLens,
    )
}


def choose(names: tuple[str, ...]) -> tuple[Lens, ...]:
    """The lenses called `names` with their default options; all for no names. Structure and signal always come."""
    for name in names:
        if name not in LENSES:
            raise InvalidInputError(f"There is no lens {name!r}. {did_you_mean(name, LENSES)}")
    wanted = {StructureLens.name, SignalLens.name, *(names or LENSES)}
    return tuple(lens() for name, lens in LENSES.items() if name in wanted)
