"""Training runs: frozen recipes, callbacks, checkpoints, and readings taken on the way."""

from skiplens.readings.training_history import TrainingHistory as TrainingHistory
from skiplens.training.along import AlongTraining as AlongTraining
from skiplens.training.along import readings_along as readings_along
from skiplens.training.callbacks import Callback as Callback
from skiplens.training.callbacks import Moment as Moment
from skiplens.training.checkpoints import Checkpoint as Checkpoint
from skiplens.training.depth_history import depth_during_training as depth_during_training
from skiplens.training.evaluation import Evaluation as Evaluation
from skiplens.training.evaluation import evaluate as evaluate
from skiplens.training.interpolation import at_losses as at_losses
from skiplens.training.interpolation import at_steps as at_steps
from skiplens.training.loop import train as train
from skiplens.training.measure_along import MeasureAlong as MeasureAlong
from skiplens.training.measure_along import Taken as Taken
from skiplens.training.measurer import Measurer as Measurer
from skiplens.training.monitor import Monitor as Monitor
from skiplens.training.monitor import MonitorOptions as MonitorOptions
from skiplens.training.recipe import Recipe as Recipe
from skiplens.training.spin_glass_depth import spin_glass_depth as spin_glass_depth
