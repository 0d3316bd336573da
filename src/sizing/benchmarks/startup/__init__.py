"""Readers of engine start-up logs, one file an engine; each enters itself in the registry."""
