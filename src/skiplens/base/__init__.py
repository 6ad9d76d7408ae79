"""Words that all folders share: errors, arguments, settings, randomness, precision, memory, files, optional imports.

Those that are written twice are public.
"""

import importlib
from typing import TYPE_CHECKING, Any

from skiplens.base.errors import BrokenFileError as BrokenFileError
from skiplens.base.errors import ClusterError as ClusterError
from skiplens.base.errors import CoupledSamplesError, NotReachedError, did_you_mean, pick, refuse_if, require_known
from skiplens.base.errors import DataError as DataError
from skiplens.base.errors import DidNotConverge as DidNotConverge
from skiplens.base.errors import InvalidInputError as InvalidInputError
from skiplens.base.errors import MissingDependencyError as MissingDependencyError
from skiplens.base.errors import ModelSpecError as ModelSpecError
from skiplens.base.errors import NoFrozenFormError as NoFrozenFormError
from skiplens.base.errors import NotExportableError as NotExportableError
from skiplens.base.errors import NotResidualError as NotResidualError
from skiplens.base.errors import NotTwiceDifferentiableError as NotTwiceDifferentiableError
from skiplens.base.errors import SettingsError as SettingsError
from skiplens.base.errors import SkiplensError as SkiplensError
from skiplens.base.errors import TooLargeError as TooLargeError
from skiplens.base.errors import TooNewFileError as TooNewFileError
from skiplens.base.errors import UnsafeFileError as UnsafeFileError
from skiplens.base.progress import Progress as Progress
from skiplens.base.progress import silent as silent
from skiplens.base.progress import track
from skiplens.base.randomness import Randomness as Randomness
from skiplens.base.randomness import own_random_state, seed_torch
from skiplens.base.settings import Settings as Settings
from skiplens.base.settings import option as option
from skiplens.base.words import branches, in_words, percent, plus_minus, span, times

_LATER = dict.fromkeys(("Bool", "Float", "Int"), "skiplens.base.axes") | dict.fromkeys(
    ("budget_bytes", "free_bytes", "give_back", "readable", "require_fits", "require_least"), "skiplens.base.memory"
)

if TYPE_CHECKING:
    from skiplens.base.axes import Bool, Float, Int
    from skiplens.base.memory import budget_bytes, free_bytes, give_back, readable, require_fits, require_least
else:

    def __getattr__(name: str) -> Any:
        """A name whose module loads numpy or torch, which a call for help does not wait for."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LATER[name]), name)
