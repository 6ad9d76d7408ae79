"""Figures 2 and 9: pre-activation ResNets on CIFAR-10, their weight norms and their test errors."""
