"""Matrix-free numerics that know no network: operators, Lanczos, probes, traces."""
