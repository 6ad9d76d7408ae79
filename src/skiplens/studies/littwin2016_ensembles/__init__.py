"""Littwin & Wolf 2016, The Loss Surface of Residual Networks."""
