"""Time of an engine step: prefill, decode and mixed.

A step is additive: ``linear(tokens) + head(rows) + decode attention(batch, context) + prefill
attention(tokens, pairs) + engine(batch, prefill)``. Under the ideal calibration (``rule-of-thumb``) it is one
roofline: all bytes over a share of the bandwidth or all operations over a share of the peak.
"""

from sizing.steptime.constants import nominal_and_draws, scaled, with_engine
from sizing.steptime.model import StepModel, step_model

__all__ = ["StepModel", "nominal_and_draws", "scaled", "step_model", "with_engine"]
