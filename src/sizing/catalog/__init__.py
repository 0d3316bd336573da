"""Accelerators, prices, models: TOML to frozen records, forgiving names, a user's own file on top."""

from sizing.catalog.facts import Fact
from sizing.catalog.gpus import Gpu, gpu, gpus, resolve_gpu
from sizing.catalog.overlay import overlay
from sizing.catalog.prices import Quote, price, quotes

__all__ = ["Fact", "Gpu", "Quote", "gpu", "gpus", "overlay", "price", "quotes", "resolve_gpu"]
