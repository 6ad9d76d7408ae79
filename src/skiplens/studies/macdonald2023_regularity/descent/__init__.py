"""Theorem 2.3: smooth losses with the Polyak-Łojasiewicz inequality are minimised at a linear rate."""
