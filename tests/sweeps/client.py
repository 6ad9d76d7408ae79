"""A client that kills itself: `python -m tests.sweeps.client STORE EXECUTOR DONE`, after so many runs are done.

What processes it had then is in `STORE.children`.
"""

import os
import signal
import sys
from pathlib import Path

from skiplens.readings.store import Store
from skiplens.sweeps.dask_executor import DaskCluster
from skiplens.sweeps.executor import LocalWorkers
from skiplens.sweeps.sweep import Status, sweep
from tests.sweeps.measures import runs

if __name__ == "__main__":
    folder, where, done = sys.argv[1:]

    def watch(status: Status) -> None:
        if status.done >= int(done):
            me = os.getpid()
            Path(f"{folder}.children").write_text(Path(f"/proc/{me}/task/{me}/children").read_text())
            os.kill(me, signal.SIGKILL)

    executor = LocalWorkers(2) if where == "local" else DaskCluster(where)
    sweep(runs(count=12), Store(folder), executor, watch)
