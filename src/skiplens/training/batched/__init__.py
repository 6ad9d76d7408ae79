"""Many networks trained as one program."""

from skiplens.training.batched.chains import Units as Units
from skiplens.training.batched.chains import network_maps as network_maps
from skiplens.training.batched.chains import train_linear_networks as train_linear_networks
from skiplens.training.batched.chains import train_rectified_networks as train_rectified_networks
from skiplens.training.batched.plan import BatchedPlan as BatchedPlan
from skiplens.training.batched.plan import ManyRuns as ManyRuns
from skiplens.training.batched.plan import best_rate as best_rate
from skiplens.training.batched.plan import drawn_starts as drawn_starts
