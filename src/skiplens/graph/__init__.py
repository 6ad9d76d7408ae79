"""What we look at: residual blocks, the networks they make, and how to change them."""

from skiplens.graph.blocks import Addition as Addition
from skiplens.graph.blocks import Branch as Branch
from skiplens.graph.blocks import DenseJoin as DenseJoin
from skiplens.graph.blocks import ResidualBlock as ResidualBlock
from skiplens.graph.blocks import Shortcut as Shortcut
from skiplens.graph.blocks import ShortcutKind as ShortcutKind
from skiplens.graph.dissect import dissect as dissect
from skiplens.graph.dissect import find_residual_blocks as find_residual_blocks
from skiplens.graph.network import ResidualNetwork as ResidualNetwork
from skiplens.graph.network import part_function as part_function
from skiplens.graph.network import span_function as span_function
