"""A whole decoder with random weights: its layer stack, KV cache and head, as a served model runs it."""
