"""Smoothness of training losses: certified for all parameters, and measured where training goes."""

from skiplens.theory.smoothness.certified import Smoothness as Smoothness
from skiplens.theory.smoothness.certified import SmoothnessLaw as SmoothnessLaw
from skiplens.theory.smoothness.certified import certified_smoothness as certified_smoothness
from skiplens.theory.smoothness.certified import descent_constant as descent_constant
from skiplens.theory.smoothness.costs import Cost as Cost
from skiplens.theory.smoothness.costs import CrossEntropy as CrossEntropy
from skiplens.theory.smoothness.costs import Logistic as Logistic
from skiplens.theory.smoothness.costs import SquareCost as SquareCost
from skiplens.theory.smoothness.measured import Looseness as Looseness
from skiplens.theory.smoothness.measured import local_smoothness as local_smoothness
from skiplens.theory.smoothness.measured import looseness as looseness
from skiplens.theory.smoothness.measured import search_rough_point as search_rough_point
from skiplens.theory.smoothness.training_loss import TrainingLoss as TrainingLoss
