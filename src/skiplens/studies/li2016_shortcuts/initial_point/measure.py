"""Figure 4, measured: all eigenvalues of the exact Hessian at the initial weights."""

from skiplens.core.axes import Tensor
from skiplens.studies.li2016_shortcuts.digits import digit_moments
from skiplens.studies.li2016_shortcuts.families import FAMILIES
from skiplens.studies.li2016_shortcuts.initial_point.settings import InitialSpectrum
from skiplens.studies.li2016_shortcuts.scalars import scalars
from skiplens.studies.li2016_shortcuts.zero_point.printed import printed_condition_number
from skiplens.theory.shortcut_hessian import linear_hessian, spectrum_of


def initial_spectrum(settings: InitialSpectrum) -> dict[str, Tensor]:
    """Largest, 10 % quantile and condition number of the |eigenvalues|, the index, and equation (9) for these data."""
    moments = digit_moments(settings.source)
    family = FAMILIES[settings.family]
    spectrum = spectrum_of(linear_hessian(family.units(family.start(settings.depth, settings.stream())), moments))
    return scalars(
        largest=spectrum.largest_absolute,
        tenth=spectrum.absolute_quantile(0.1),
        condition_number=spectrum.condition_number,
        full_condition_number=spectrum.full_condition_number,
        index=spectrum.index,
        zero_condition_number=printed_condition_number(moments.inputs - moments.cross),
    )
