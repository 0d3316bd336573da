"""What an engine does its own way, by version: defaults, memory rules, limits, wording. One file an engine."""

from sizing.engines.cache import CacheGroup, CachePool
from sizing.engines.record import Defaults, Engine, Overhead, Rank, Version, engine, engines

__all__ = ["CacheGroup", "CachePool", "Defaults", "Engine", "Overhead", "Rank", "Version", "engine", "engines"]
