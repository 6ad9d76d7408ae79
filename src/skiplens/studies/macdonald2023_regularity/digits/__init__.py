"""Figure 2: MNIST networks without skips, with skips, and with an average pool added to a skip."""
