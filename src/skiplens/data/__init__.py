"""What a model is fed: batches, the embedded sample, data sets by name, folders of images, synthetic tasks."""

from skiplens.data.fetch import available as available
from skiplens.data.fetch import get as get
from skiplens.data.files import SavedDataset as SavedDataset
from skiplens.data.files import load_file as load_file
from skiplens.data.images import ImageSet as ImageSet
from skiplens.data.images import sample as sample
from skiplens.data.loading import ImageBatches as ImageBatches
from skiplens.data.loading import ImageFolder as ImageFolder
from skiplens.data.loading import LoadOptions as LoadOptions
from skiplens.data.loading import fit_to as fit_to
from skiplens.data.loading import load as load
from skiplens.data.loading import open_folder as open_folder
from skiplens.data.preprocessing import Standardisation as Standardisation
from skiplens.data.preprocessing import Whitening as Whitening
from skiplens.data.preprocessing import fit_whitening as fit_whitening
from skiplens.data.preprocessing import measure_channels as measure_channels
from skiplens.data.synthetic import GaussianClasses as GaussianClasses
from skiplens.data.synthetic import gaussian_classes as gaussian_classes
from skiplens.data.synthetic import random_unit_vectors as random_unit_vectors
from skiplens.data.synthetic import vectors_at_angles as vectors_at_angles
from skiplens.data.synthetic import vectors_on_circle as vectors_on_circle
from skiplens.graph.batch import Batch as Batch
from skiplens.graph.batch import Batches as Batches
from skiplens.graph.batch import as_batches as as_batches
from skiplens.graph.batch import count_samples as count_samples
from skiplens.graph.batch import take as take
