"""Failed runs on disk: one JSON file each beside the readings, gone when the run succeeds later."""

import json
import platform
from pathlib import Path

from skiplens.core.files import write_content
from skiplens.core.version import VERSION
from skiplens.readings import Store
from skiplens.sweeps.run import Outcome


def failure_path(store: Store, key: str) -> Path:
    """Where the failure of the run called `key` is, or would be, recorded."""
    return store.path(key).parent / "failed" / f"{key}.json"


def record_failure(store: Store, outcome: Outcome) -> None:
    """Write down why the run failed, with its traceback."""
    assert outcome.failure is not None
    content = {
        "run": str(outcome.run),
        "measure": outcome.run.measure,
        "settings": outcome.run.settings.to_json(),
        "error": outcome.failure.error,
        "traceback": outcome.failure.traceback,
        "skiplens": VERSION,
        "host": platform.node(),
    }
    write_content(failure_path(store, outcome.run.key), json.dumps(content, indent=1, ensure_ascii=False))


def forget_failure(store: Store, key: str) -> None:
    """Remove the record of an earlier failure, if there is one."""
    failure_path(store, key).unlink(missing_ok=True)
