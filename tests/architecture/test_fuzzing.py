"""Mutated config.json files give a model with named warnings or one InputError: no crash, no hang, nothing negative."""

import contextlib
import copy
import json
import math
import random
import time
from collections.abc import Iterator

import pytest

from sizing.architecture import model_from_config
from sizing.catalog.models import model_facts, models
from sizing.errors import InputError

HUGE = (10**9, 10**18, 10**400, -1, 0, -7, 3.5, float("inf"), float("-inf"), float("nan"), 2**63, 1e308)
ODD = ("", "x" * 50_000, "4096", None, True, False, [], {}, [None], [[]], {"a": {"b": []}}, [1, "two", None], "\x00")
NEW_KEYS = (
    "num_experts", "kv_lora_rank", "layer_types", "sliding_window", "attn_type_list", "hybrid_override_pattern",
    "block_configs", "quantization_config", "per_layer_config", "head_dim", "vision_config", "linear_num_value_heads",
)  # fmt: skip
PATTERN = "re:(a+)+$|(.*)*x"


def places(node: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*path, key)
            yield from places(value, (*path, key))
    elif isinstance(node, list) and node:
        yield (*path, 0)
        yield (*path, len(node) - 1)


def at(node, path):
    for key in path[:-1]:
        node = node[key]
    return node, path[-1]


def mutated(config: dict, rng: random.Random) -> dict:
    config = copy.deepcopy(config)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        paths = list(places(config))
        if not paths:
            break
        holder, key = at(config, rng.choice(paths))
        how = rng.randrange(9)
        if how == 0:
            del holder[key]
        elif how == 1:
            holder[key] = rng.choice(HUGE)
        elif how == 2:
            holder[key] = rng.choice(ODD)
        elif how == 3:
            other, name = at(config, rng.choice(paths))
            with contextlib.suppress(KeyError, IndexError):
                holder[key], other[name] = other[name], holder[key]
        elif how == 4 and isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] = holder[key] * rng.choice((-1, 2, 1000, 10**6)) + rng.choice((0, 1, -1))
        elif how == 5:
            holder[key] = [holder[key]] * rng.choice((1, 3, 200))
        elif how == 6:
            holder[key] = {"deep": holder[key]}
        elif how == 7 and isinstance(holder, dict):
            holder[rng.choice(NEW_KEYS)] = rng.choice((*HUGE, *ODD))
        else:
            config["quantization_config"] = {
                "quant_method": rng.choice(("fp8", "awq", "compressed-tensors", "modelopt", "new", 7)),
                "bits": rng.choice((4, 8, 0, -3, 1000, "4")),
                "group_size": rng.choice((128, 0, -1, 10**9, None)),
                "ignore": rng.choice(([PATTERN, "lm_head"], ["*" * 300], "lm_head", [7, None])),
                "config_groups": rng.choice(({"g": {"weights": {"num_bits": 4}}}, [], {"g": 3})),
            }
    return config


def check(config: dict) -> str:
    begun = time.perf_counter()
    try:
        model = model_from_config(config, "mutated")
        numbers = [
            model.parameters, model.active_parameters, model.checkpoint_parameters, model.checkpoint_bytes,
            model.weights_bytes(), model.weights_bytes("fp8", tp=8, pp=3, ep=4), model.kv_bytes_per_token("fp8", tp=4),
            model.kv_bytes(100_000), model.state_bytes(), model.flops_per_token(1000.0), model.mtp_parameters,
        ]  # fmt: skip
    except InputError as error:
        outcome, said = "refused", str(error)
    else:
        assert all(math.isfinite(number) and number >= 0 for number in numbers), numbers
        assert model.parameters > 0
        assert all(len(warning) < 2000 for warning in model.warnings)
        outcome = "read"
    assert time.perf_counter() - begun < 10.0
    assert outcome == "read" or (0 < len(said) < 2000 and "\n" not in said)
    return outcome


def run(count: int, seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    names = models()
    outcomes = {"read": 0, "refused": 0}
    for _ in range(count):
        config = mutated(model_facts(rng.choice(names)).config, rng)
        try:
            outcomes[check(config)] += 1
        except Exception as error:
            shown = json.dumps(config, default=str)[:3000] if len(str(error)) < 5000 else ""
            raise AssertionError(f"{type(error).__name__}: {error!s:.300} for {shown}") from error
    return outcomes


def test_some_mutated_configs() -> None:
    outcomes = run(400, seed=1)
    assert outcomes["read"] > 100
    assert outcomes["refused"] > 50


@pytest.mark.slow
def test_five_thousand_mutated_configs() -> None:
    outcomes = run(5_000, seed=2)
    assert sum(outcomes.values()) == 5_000
