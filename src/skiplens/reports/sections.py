"""How each kind of reading is told on the page."""

from collections.abc import Callable
from typing import Any

from skiplens.readings import (
    HessianSpectrum,
    HypothesesReading,
    JacobianSpectrum,
    MonitorReading,
    PathSpectrum,
    Reading,
    SignalReading,
    StructureReading,
    TangentReading,
    VerificationReading,
)
from skiplens.reports.convergence_section import convergence_section
from skiplens.reports.curvature_section import curvature_section
from skiplens.reports.jacobians_section import jacobians_section
from skiplens.reports.monitor_section import monitor_section
from skiplens.reports.paths_section import paths_section
from skiplens.reports.section import Section
from skiplens.reports.signal_section import signal_section
from skiplens.reports.structure_section import structure_section
from skiplens.reports.tangent_section import tangent_section
from skiplens.reports.verification_section import verification_section

SECTIONS: dict[type[Reading], Callable[[Any], Section]] = {
    StructureReading: structure_section,
    SignalReading: signal_section,
    PathSpectrum: paths_section,
    HessianSpectrum: curvature_section,
    JacobianSpectrum: jacobians_section,
    HypothesesReading: convergence_section,
    TangentReading: tangent_section,
    MonitorReading: monitor_section,
    VerificationReading: verification_section,
}


def section_of(reading: Reading) -> Section:
    """The section of `reading`, with its figures and its provenance."""
    return SECTIONS[type(reading)](reading)
