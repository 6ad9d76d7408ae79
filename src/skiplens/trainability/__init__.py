"""Trainability: whether a network will train, how low, at which rate, and which of several trains best."""

from skiplens.trainability.forecast import forecast as forecast
from skiplens.trainability.long_run import long_run_order as long_run_order
from skiplens.trainability.ranking import Ranking as Ranking
from skiplens.trainability.ranking import rank as rank
from skiplens.trainability.reading import Forecast as Forecast
