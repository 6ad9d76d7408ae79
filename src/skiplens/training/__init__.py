"""Training runs: frozen recipes, callbacks, checkpoints, and readings taken on the way."""

from skiplens.training.callbacks import Callback as Callback
from skiplens.training.callbacks import Evaluation as Evaluation
from skiplens.training.callbacks import Moment as Moment
from skiplens.training.callbacks import evaluate as evaluate
from skiplens.training.checkpoints import Checkpoint as Checkpoint
from skiplens.training.history import TrainingHistory as TrainingHistory
from skiplens.training.loop import train as train
from skiplens.training.recipe import Recipe as Recipe
