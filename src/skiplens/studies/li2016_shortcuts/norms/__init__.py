"""Figure 3: norms of the weights during training."""
