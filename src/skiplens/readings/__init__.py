"""What comes out: frozen readings, the file that holds one, and the folder that holds many."""

from skiplens.readings.along import QuantityAlong as QuantityAlong
from skiplens.readings.curvature import HessianSpectrum as HessianSpectrum
from skiplens.readings.depth_history import DepthHistory as DepthHistory
from skiplens.readings.file import read_file as read_file
from skiplens.readings.file import write_file as write_file
from skiplens.readings.hypotheses import HypothesesReading as HypothesesReading
from skiplens.readings.jacobians import JacobianSpectrum as JacobianSpectrum
from skiplens.readings.jacobians import SpectrumStatistics as SpectrumStatistics
from skiplens.readings.landscape import LandscapeReading as LandscapeReading
from skiplens.readings.measurement import Measurement as Measurement
from skiplens.readings.monitor import MonitorReading as MonitorReading
from skiplens.readings.paths import PathSpectrum as PathSpectrum
from skiplens.readings.provenance import Provenance as Provenance
from skiplens.readings.reading import Reading as Reading
from skiplens.readings.signal import SignalReading as SignalReading
from skiplens.readings.store import BrokenFileWarning as BrokenFileWarning
from skiplens.readings.store import Store as Store
from skiplens.readings.structure import StructureReading as StructureReading
from skiplens.readings.tangent import TangentReading as TangentReading
from skiplens.readings.training_history import TrainingHistory as TrainingHistory
from skiplens.readings.verification import VerificationReading as VerificationReading
