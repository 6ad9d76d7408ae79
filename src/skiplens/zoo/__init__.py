"""The networks of the four papers, each by name and with options, as the corrected theory defines them."""

from skiplens.zoo.catalogue import DEFAULT as DEFAULT
from skiplens.zoo.catalogue import Row as Row
from skiplens.zoo.catalogue import build as build
from skiplens.zoo.catalogue import build_from_text as build_from_text
from skiplens.zoo.catalogue import entry as entry
from skiplens.zoo.catalogue import names as names
from skiplens.zoo.catalogue import parse as parse
from skiplens.zoo.catalogue import summary as summary
from skiplens.zoo.entry import Entry as Entry
from skiplens.zoo.layers import branch_parameters as branch_parameters
from skiplens.zoo.littwin2020 import reduced_network as reduced_network
