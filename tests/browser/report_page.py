"""A report with a bad name wherever one can be, for the tests of its page."""

import torch

from skiplens.report.inspection import Problem, Report
from tests.report.readings import paths, signal
from tests.report.test_findings_section import finding
from tests.sample_readings import curvature, jacobians, structure

HOSTILE = "</script><img src=x onerror=alert(1)><b>'\"&amp;"
NAMES = ("b0", "b1", HOSTILE, "b3")
CODE = "for name in ('a', \"b\"):\n    print(name < 'c' & 1)  # <b>"
PHONE = {"viewport": {"width": 360, "height": 740}}


def made(whole: bool = False) -> Report:
    """A page with a bad name wherever one can be; the readings of all lenses on it only if it is the whole one."""
    readings = [
        structure(blocks=4, block_names=NAMES, model=HOSTILE, notes=(HOSTILE,)),
        signal(blocks=4, block_names=NAMES, norm_scales=torch.tensor([1.0, 2.0, 3.0, float("nan")])),
    ]
    if whole:
        pairs = torch.eye(4)
        by_block = {"block_energy": torch.ones(4), "block_shares": torch.ones(4), "pair_energy": pairs}
        readings.append(paths([1.0, 4.0, 6.0, 4.0, 1.0], block_names=NAMES, **by_block))
        readings.append(curvature(block_values={name: curvature().values() for name in NAMES}))
        readings.append(jacobians())
    findings = (finding("critical", where=("b1",), code=CODE, sentence=HOSTILE), finding("note", where=("b3",)))
    return Report(HOSTILE, tuple(readings), (Problem(HOSTILE, HOSTILE),), findings)
