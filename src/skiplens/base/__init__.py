"""Words everyone shares: errors, randomness, settings, axes, memory, progress."""
