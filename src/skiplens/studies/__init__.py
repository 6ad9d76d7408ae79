"""Studies: every figure and theorem of the four papers as runs, figures, tables and verdicts."""

from skiplens.studies.catalogue import choose as choose
from skiplens.studies.catalogue import studies as studies
from skiplens.studies.claim import Claim as Claim
from skiplens.studies.claim import Judgement as Judgement
from skiplens.studies.reproduction import Reproduction as Reproduction
from skiplens.studies.reproduction import reproduce as reproduce
from skiplens.studies.study import Item as Item
from skiplens.studies.study import PaperCard as PaperCard
from skiplens.studies.study import Study as Study
from skiplens.studies.study import Table as Table
from skiplens.studies.verdict import Verdict as Verdict
