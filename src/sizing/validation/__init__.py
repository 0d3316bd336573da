"""Predictions held against measurements, one file a kind."""
