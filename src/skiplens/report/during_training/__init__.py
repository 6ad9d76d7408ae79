"""A network while it trains: a monitor within a share of the run's time, and measurements along a recipe."""

from skiplens.report.during_training.along import at_losses as at_losses
from skiplens.report.during_training.along import at_steps as at_steps
from skiplens.report.during_training.along import readings_along as readings_along
from skiplens.report.during_training.depth import depth_during_training as depth_during_training
from skiplens.report.during_training.depth_reading import DepthHistory as DepthHistory
from skiplens.report.during_training.measurer import MeasureAlong as MeasureAlong
from skiplens.report.during_training.monitor import Monitor as Monitor
from skiplens.report.during_training.record import MonitorReading as MonitorReading
