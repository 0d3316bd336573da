"""Kernels measured on the user own GPU; never imports sizing."""
