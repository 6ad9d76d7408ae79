"""Readings as a page: one self-contained HTML file that opens from disk."""

from skiplens.report.comparison import Comparison as Comparison
from skiplens.report.comparison import compare as compare
from skiplens.report.inspection import Problem as Problem
from skiplens.report.inspection import Report as Report
from skiplens.report.inspection import inspect as inspect
from skiplens.report.verification import RaceOptions as RaceOptions
from skiplens.report.verification import verify as verify
