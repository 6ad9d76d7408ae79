"""The hypotheses of the convergence theorems: descriptions in, verdicts out."""

from skiplens.jacobians.hypotheses.conditions import check as check
from skiplens.jacobians.hypotheses.conditions import what_follows as what_follows
from skiplens.jacobians.hypotheses.descriptions import HYPOTHESES as HYPOTHESES
from skiplens.jacobians.hypotheses.descriptions import Case as Case
from skiplens.jacobians.hypotheses.descriptions import CheckedHypothesis as CheckedHypothesis
from skiplens.jacobians.hypotheses.descriptions import CostFacts as CostFacts
from skiplens.jacobians.hypotheses.descriptions import DataFacts as DataFacts
from skiplens.jacobians.hypotheses.descriptions import Description as Description
from skiplens.jacobians.hypotheses.descriptions import FreeMap as FreeMap
from skiplens.jacobians.hypotheses.descriptions import Kinked as Kinked
from skiplens.jacobians.hypotheses.descriptions import LinearMap as LinearMap
from skiplens.jacobians.hypotheses.descriptions import ParallelBranches as ParallelBranches
from skiplens.jacobians.hypotheses.descriptions import ResidualLayer as ResidualLayer
from skiplens.jacobians.hypotheses.descriptions import SampledGain as SampledGain
from skiplens.jacobians.hypotheses.descriptions import Skip as Skip
from skiplens.jacobians.hypotheses.descriptions import Unrecognised as Unrecognised
from skiplens.jacobians.hypotheses.descriptions import describe as describe
