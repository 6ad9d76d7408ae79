"""Figure 1: singular values of a random linear layer, with and without a skip."""
