"""Studies: every figure and theorem of the four papers, and our own questions, as runs and verdicts."""

from skiplens.papers.reproduction import Reproduction as Reproduction
from skiplens.papers.reproduction import reproduce as reproduce
from skiplens.papers.study import Claim as Claim
from skiplens.papers.study import Item as Item
from skiplens.papers.study import Judgement as Judgement
from skiplens.papers.study import PaperCard as PaperCard
from skiplens.papers.study import Study as Study
from skiplens.papers.study import Table as Table
from skiplens.papers.study import Verdict as Verdict
from skiplens.papers.study import choose as choose
from skiplens.papers.study import studies as studies
