"""What a model is fed: batches, the embedded sample, data sets by name, folders of images, synthetic tasks."""

from skiplens.data.batch import Batch as Batch
from skiplens.data.batch import Batches as Batches
from skiplens.data.batch import as_batches as as_batches
from skiplens.data.batch import count_samples as count_samples
from skiplens.data.batch import take as take
from skiplens.data.embedded import sample as sample
from skiplens.data.fetch import available as available
from skiplens.data.fetch import get as get
from skiplens.data.fitting import fit_to as fit_to
from skiplens.data.folder import ImageFolder as ImageFolder
from skiplens.data.folder import open_folder as open_folder
from skiplens.data.gaussians import GaussianClasses as GaussianClasses
from skiplens.data.gaussians import gaussian_classes as gaussian_classes
from skiplens.data.images import ImageSet as ImageSet
from skiplens.data.load import ImageBatches as ImageBatches
from skiplens.data.load import LoadOptions as LoadOptions
from skiplens.data.load import load as load
from skiplens.data.sphere import random_unit_vectors as random_unit_vectors
from skiplens.data.sphere import vectors_at_angles as vectors_at_angles
from skiplens.data.sphere import vectors_on_circle as vectors_on_circle
from skiplens.data.standardise import Standardisation as Standardisation
from skiplens.data.standardise import measure_channels as measure_channels
from skiplens.data.whitening import Whitening as Whitening
from skiplens.data.whitening import fit_whitening as fit_whitening
