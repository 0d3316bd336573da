"""Readers of load-test results and start-up logs: any tool's file -> points in SI seconds."""

from sizing.benchmarks.export import llmd_report
from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.benchmarks.reading import formats, read_benchmark

__all__ = ["BenchPoint", "Latency", "Load", "formats", "llmd_report", "read_benchmark"]
