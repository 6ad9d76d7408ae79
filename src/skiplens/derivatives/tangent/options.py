"""Keyword options that all looks at the empirical tangent kernel share."""

from typing import Any, Literal, TypedDict

from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.core.progress import Progress
from skiplens.derivatives.functional import ParameterChoice

Algorithm = Literal["auto", "layers", "jacobian", "rows", "products"]
ALGORITHMS = ("auto", "layers", "jacobian", "rows", "products")


class TangentOptions(TypedDict, total=False):
    """Options of `empirical_ntk`, `ntk_diagonal` and `NTKOperator`."""

    parameters: ParameterChoice
    """Names of the parameters to differentiate, or a test on names; by default all that require a gradient."""
    algorithm: Algorithm
    """``"auto"`` takes what is quickest; the others are there to check each other."""
    budget: int | None
    """Bytes that may be used, the result included; by default half of what is free."""
    progress: Progress
    """Called with a label, the steps done and the steps in all."""


def check_options(options: Any) -> None:
    """Refuse unknown options and unknown algorithms by name."""
    known = TangentOptions.__annotations__
    for name in options:
        if name not in known:
            raise InvalidInputError(f"There is no option {name!r}. {did_you_mean(name, known)}")
    algorithm = options.get("algorithm", "auto")
    if algorithm not in ALGORITHMS:
        raise InvalidInputError(f"There is no algorithm {algorithm!r}. {did_you_mean(str(algorithm), ALGORITHMS)}")
