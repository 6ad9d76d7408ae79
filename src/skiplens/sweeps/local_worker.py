"""What runs in a worker process of this machine: take a run, do it, send the outcome, until there is no more."""

import os
import pickle
import signal
import threading
from multiprocessing import parent_process
from multiprocessing.connection import Connection

from skiplens.sweeps.perform import perform


def serve(connection: Connection, gpus: str) -> None:
    """Do the runs that come through `connection`, one at a time.

    Args:
        connection: Pickled runs come, pickled outcomes go. Bytes, because torch would send tensors as open files.
        gpus: The value of CUDA_VISIBLE_DEVICES: the GPUs that are this worker's own, or none.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # torch reads it when it first touches a GPU
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's matter
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            run = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        connection.send_bytes(pickle.dumps(perform(run)))


def _end_with_parent() -> None:
    """Die at once when the parent does, also in the middle of a run: nobody would take its outcome."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
