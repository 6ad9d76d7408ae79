"""The signal lens: how signal and gradient fare from block to block; cheap, and taken in every inspection."""

from skiplens.signal.lens import SignalLens as SignalLens
