"""Guaranteed training: the theorem as printed fails, a repaired network for which gradient descent provably arrives."""

from skiplens.theory.guaranteed_training.counterexample import CounterexampleRun as CounterexampleRun
from skiplens.theory.guaranteed_training.counterexample import run_counterexample as run_counterexample
from skiplens.theory.guaranteed_training.descent import DescentPoint as DescentPoint
from skiplens.theory.guaranteed_training.descent import descend as descend
from skiplens.theory.guaranteed_training.guarantee import Guarantee as Guarantee
from skiplens.theory.guaranteed_training.network import GuaranteedNetwork as GuaranteedNetwork
from skiplens.theory.guaranteed_training.printed_bound import PrintedBoundRun as PrintedBoundRun
from skiplens.theory.guaranteed_training.printed_bound import run_printed_bound as run_printed_bound
from skiplens.theory.guaranteed_training.training import GuaranteedRun as GuaranteedRun
from skiplens.theory.guaranteed_training.training import TrainingPlan as TrainingPlan
from skiplens.theory.guaranteed_training.training import guarantee_from as guarantee_from
from skiplens.theory.guaranteed_training.training import guaranteed_loss as guaranteed_loss
from skiplens.theory.guaranteed_training.training import train_with_guarantee as train_with_guarantee
from skiplens.theory.guaranteed_training.weight_growth import largest_weight_bound as largest_weight_bound
