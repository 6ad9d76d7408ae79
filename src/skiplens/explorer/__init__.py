"""The explorer: the theory and your own runs on one page in a browser, served on this machine alone."""
