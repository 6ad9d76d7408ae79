"""What each run measures: settings in, tensors out, everything drawn from the stream that the settings name."""
