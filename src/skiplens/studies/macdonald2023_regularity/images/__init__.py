"""Figures 3 to 6 and tables 1 to 3: ResNets on CIFAR and ImageNet, with and without a pool beside their shortcuts."""
