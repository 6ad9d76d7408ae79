"""The hypotheses of the convergence theorems: descriptions in, verdicts out."""

from skiplens.theory.hypotheses.check import check as check
from skiplens.theory.hypotheses.check import what_follows as what_follows
from skiplens.theory.hypotheses.descriptions import Description as Description
from skiplens.theory.hypotheses.descriptions import FreeMap as FreeMap
from skiplens.theory.hypotheses.descriptions import Kinked as Kinked
from skiplens.theory.hypotheses.descriptions import LinearMap as LinearMap
from skiplens.theory.hypotheses.descriptions import ParallelBranches as ParallelBranches
from skiplens.theory.hypotheses.descriptions import ResidualLayer as ResidualLayer
from skiplens.theory.hypotheses.descriptions import Skip as Skip
from skiplens.theory.hypotheses.descriptions import Unrecognised as Unrecognised
from skiplens.theory.hypotheses.descriptions import describe as describe
from skiplens.theory.hypotheses.facts import Case as Case
from skiplens.theory.hypotheses.facts import CostFacts as CostFacts
from skiplens.theory.hypotheses.facts import DataFacts as DataFacts
from skiplens.theory.hypotheses.facts import SampledGain as SampledGain
from skiplens.theory.hypotheses.verdicts import HYPOTHESES as HYPOTHESES
from skiplens.theory.hypotheses.verdicts import CheckedHypothesis as CheckedHypothesis
