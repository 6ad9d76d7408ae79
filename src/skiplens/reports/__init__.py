"""Readings as a page: one self-contained HTML file that opens from disk."""

from skiplens.reports.comparison import Comparison as Comparison
from skiplens.reports.comparison import compare as compare
from skiplens.reports.inspection import inspect as inspect
from skiplens.reports.report import Problem as Problem
from skiplens.reports.report import Report as Report
from skiplens.reports.verification import RaceOptions as RaceOptions
from skiplens.reports.verification import verify as verify
