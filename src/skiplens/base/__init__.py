"""Words that all folders share: errors, arguments, settings, randomness, precision, memory, files, optional imports."""

from skiplens.base.errors import BrokenFileError as BrokenFileError
from skiplens.base.errors import ClusterError as ClusterError
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
from skiplens.base.randomness import Randomness as Randomness
from skiplens.base.settings import Settings as Settings
from skiplens.base.settings import option as option
