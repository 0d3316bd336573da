"""Kernels to measure, one file a kind; a file enters itself with ``@kernel("family.implementation")``."""
