"""A monitor: readings of a network while it trains, in any training loop."""

from skiplens.training.monitor.monitor import Monitor as Monitor
from skiplens.training.monitor.options import MonitorOptions as MonitorOptions
