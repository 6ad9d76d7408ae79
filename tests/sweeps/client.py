"""A client in a process of its own, to be killed: `python -m tests.sweeps.client STORE EXECUTOR SECONDS`."""

import sys

from skiplens.readings.store import Store
from skiplens.sweeps.dask_executor import DaskCluster
from skiplens.sweeps.executor import LocalWorkers
from skiplens.sweeps.sweep import sweep
from tests.sweeps.measures import runs

if __name__ == "__main__":
    folder, where, seconds = sys.argv[1:]
    executor = LocalWorkers(2) if where == "local" else DaskCluster(where)
    sweep(runs(count=12, seconds=float(seconds)), Store(folder), executor)
