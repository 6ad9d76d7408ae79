"""The benchmarks are scripts beside each other, so their folder goes on the path."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))
