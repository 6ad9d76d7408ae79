"""Proof that advice helps: each suggested change on a copy, its number taken again, and a training race."""

from skiplens.reports.verification.options import RaceOptions as RaceOptions
from skiplens.reports.verification.verify import verify as verify
