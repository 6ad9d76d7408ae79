"""Figures 7 and 8: final losses at the best learning rate, and which rate that is."""
