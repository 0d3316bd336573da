"""Readers of load-test results, one file a format; each enters itself in the registry."""
