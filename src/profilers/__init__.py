"""Kernels of a served model, measured on the user's own GPU.

A side room of the house: it needs ``torch`` (extra ``profile``), writes a measurement file
(``docs/reference/measurement-format.md``) and never imports :mod:`sizing`, which reads that file.

    profile-inference --suite default --out my-gpu.jsonl
    size-inference calibrate profile my-gpu.jsonl --out my-gpu.toml
"""

FORMAT = "sizing-profile"
"""Name of the measurement file's format."""

FORMAT_VERSION = 1
"""Version of its layout; raised when a reader of the old one would be misled."""
