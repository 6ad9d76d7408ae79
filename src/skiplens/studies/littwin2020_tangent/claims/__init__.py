"""What the paper says, as it is printed, and how our numbers decide it."""
