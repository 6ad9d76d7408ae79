"""The networks of the four papers, each by name and with options, as the corrected theory defines them."""

from skiplens.residual.zoo.blocks import branch_parameters as branch_parameters
from skiplens.residual.zoo.catalogue import DEFAULT as DEFAULT
from skiplens.residual.zoo.catalogue import build as build
from skiplens.residual.zoo.catalogue import build_from_text as build_from_text
from skiplens.residual.zoo.catalogue import entry as entry
from skiplens.residual.zoo.catalogue import names as names
from skiplens.residual.zoo.catalogue import parse as parse
from skiplens.residual.zoo.entry import Entry as Entry
from skiplens.residual.zoo.reduced import reduced_network as reduced_network
from skiplens.residual.zoo.summary import Row as Row
from skiplens.residual.zoo.summary import summary as summary
