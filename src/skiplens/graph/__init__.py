"""What is looked at: a model, its exported graph, its residual blocks, and the batch it is looked at with."""

from skiplens.graph.batch import Batch as Batch
from skiplens.graph.blocks import DenseJoin as DenseJoin
from skiplens.graph.blocks import ResidualBlock as ResidualBlock
from skiplens.graph.dissect import dissect as dissect
from skiplens.graph.dissect import find_residual_blocks as find_residual_blocks
from skiplens.graph.lens import Lens as Lens
from skiplens.graph.lens import Subject as Subject
from skiplens.graph.network import ResidualNetwork as ResidualNetwork
