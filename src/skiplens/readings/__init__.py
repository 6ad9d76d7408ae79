"""What comes out: frozen readings, the file that holds one, and the folder that holds many."""

from skiplens.readings.file import read_file as read_file
from skiplens.readings.file import write_file as write_file
from skiplens.readings.finding import Finding as Finding
from skiplens.readings.finding import Remedy as Remedy
from skiplens.readings.reading import Measurement as Measurement
from skiplens.readings.reading import Provenance as Provenance
from skiplens.readings.reading import Reading as Reading
from skiplens.readings.store import BrokenFileWarning as BrokenFileWarning
from skiplens.readings.store import Store as Store
