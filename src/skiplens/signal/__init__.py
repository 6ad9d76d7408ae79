"""The signal lens: how signal and gradient fare from block to block; cheap, and taken in every inspection."""

from skiplens.signal.lens import SignalLens as SignalLens
from skiplens.signal.reading import SignalReading as SignalReading
from skiplens.signal.structure import StructureLens as StructureLens
from skiplens.signal.structure import StructureReading as StructureReading
