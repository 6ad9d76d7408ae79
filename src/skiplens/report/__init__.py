"""Look at a model, compare several, prove what is suggested; readings as one self-contained HTML file."""

from skiplens.report.comparison import Comparison as Comparison
from skiplens.report.comparison import compare as compare
from skiplens.report.inspection import Report as Report
from skiplens.report.inspection import inspect as inspect
from skiplens.report.page import Problem as Problem
from skiplens.report.verification import RaceOptions as RaceOptions
from skiplens.report.verification import verify as verify
from skiplens.report.verification_reading import VerificationReading as VerificationReading
