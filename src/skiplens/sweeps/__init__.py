"""Sweeps: many independent runs, on this machine or a cluster, each stored once under its settings."""

from skiplens.sweeps.executor import Executor as Executor
from skiplens.sweeps.executor import ThisProcess as ThisProcess
from skiplens.sweeps.run import Failure as Failure
from skiplens.sweeps.run import Needs as Needs
from skiplens.sweeps.run import Outcome as Outcome
from skiplens.sweeps.run import Run as Run
from skiplens.sweeps.run import unfinished_work as unfinished_work
from skiplens.sweeps.sweep import Status as Status
from skiplens.sweeps.sweep import Swept as Swept
from skiplens.sweeps.sweep import grid as grid
from skiplens.sweeps.sweep import sweep as sweep
