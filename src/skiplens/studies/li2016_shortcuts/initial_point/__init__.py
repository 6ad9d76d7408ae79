"""Figure 4: condition numbers at the start."""
