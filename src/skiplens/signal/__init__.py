"""The signal lens: how signal and gradient fare from block to block; cheap, and taken in every inspection."""

from skiplens.signal.layer_findings import layer_findings as layer_findings
from skiplens.signal.layers import LayersLens as LayersLens
from skiplens.signal.layers import LayerStates as LayerStates
from skiplens.signal.layers import layer_states as layer_states
from skiplens.signal.lens import SignalLens as SignalLens
from skiplens.signal.reading import SignalReading as SignalReading
from skiplens.signal.structure import StructureLens as StructureLens
from skiplens.signal.structure import StructureReading as StructureReading
