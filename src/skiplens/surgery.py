"""Changes that the papers recommend; each returns a new network, or says what a change would do."""

from skiplens.edits.initialisation import rescale_branches as rescale_branches
from skiplens.edits.initialisation import zero_branch_ends as zero_branch_ends
from skiplens.edits.structure import add_norms as add_norms
from skiplens.edits.structure import add_scales as add_scales
from skiplens.edits.structure import add_shortcuts as add_shortcuts
from skiplens.edits.structure import move_norms as move_norms
from skiplens.edits.structure import norms_first as norms_first
from skiplens.edits.structure import remove_norms as remove_norms
from skiplens.edits.structure import replace_activations as replace_activations
from skiplens.edits.structure import set_drop_rates as set_drop_rates
from skiplens.edits.structure import standardise_inputs as standardise_inputs
from skiplens.edits.structure import undo_softmax as undo_softmax
from skiplens.edits.surgery import add_average_pool_skips as add_average_pool_skips
from skiplens.edits.surgery import add_isometric_skips as add_isometric_skips
from skiplens.edits.surgery import pool_skips as pool_skips
from skiplens.edits.surgery import remove_pool_skips as remove_pool_skips
from skiplens.jacobians.averages import SurgeryEffect as SurgeryEffect
from skiplens.jacobians.averages import predict_effect as predict_effect
