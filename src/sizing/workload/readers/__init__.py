"""Readers of trace formats, one file each; a file registers itself when it is imported."""
