"""Rows for people: the list of models, and one model with its sources."""

from collections import Counter

from sizing.architecture.model import Model
from sizing.architecture.reading import read_model
from sizing.catalog.models import models

#: Context at which the list states a request's cache [token].
LISTED_CONTEXT = 8192


def kinds(model: Model) -> Counter[str]:
    """How many layers of each kind of mixer and feed-forward a model has."""
    found: Counter[str] = Counter()
    for layer in model.layers:
        mixer = layer.mixer.recurrence if layer.mixer.kind == "linear" else layer.mixer.kind
        for kind in (mixer, layer.feed_forward.kind):
            if kind != "none":
                found[kind] += layer.count
    return found


def model_rows(
    family: str | None = None, kind: str | None = None, most_parameters: float | None = None
) -> list[dict[str, object]]:
    """One row a model of the catalogue.

    Parameters
    ----------
    family
        Text that the name must hold, in any case.
    kind
        Kind of layer that it must have, such as ``mla`` or ``moe``; ``linear`` means any recurrence.
    most_parameters
        Most parameters [element].
    """
    rows = []
    for name in models():
        if family and family.lower() not in name.lower():
            continue
        model = read_model(name)
        if most_parameters is not None and model.parameters > most_parameters:
            continue
        found = kinds(model)
        wanted = (kind or "").lower()
        if wanted and wanted not in found and not any(wanted == layer.mixer.kind for layer in model.layers):
            continue
        rows.append(_row(model, found))
    return rows


def _row(model: Model, found: Counter[str]) -> dict[str, object]:
    return {
        "model": model.name,
        "parameters_b": round(model.parameters / 1e9, 2),
        "active_b": round(model.active_parameters / 1e9, 2),
        "layers": model.num_layers,
        "kinds": ", ".join(f"{count} {kind}" for kind, count in found.items()),
        "weights": model.checkpoint.name,
        "weights_gb": round(model.weights_bytes() / 1e9, 1),
        "kv_bytes_per_token": round(model.kv_bytes_per_token("bf16")),
        "kv_mib_at_8k": round(model.kv_bytes(LISTED_CONTEXT, "bf16") / 2**20, 1),
        "max_positions": model.max_positions or "",
    }


def model_fact_rows(name: str) -> tuple[list[dict[str, object]], list[str], str]:
    """Every number of one model with the formula it comes from; notes; a title."""
    model = read_model(name)
    rows = [*_count_rows(model), *_cache_rows(model), *_layer_rows(model)]
    notes = list(model.warnings)
    if model.source:
        notes.append(f"source: {model.source}")
    return rows, notes, f"{model.name}: {model.architecture or model.model_type}"


def _fact(fact: str, value: object, unit: str, formula: str) -> dict[str, object]:
    return {"fact": fact, "value": value, "unit": unit, "formula": formula}


def _count_rows(model: Model) -> list[dict[str, object]]:
    tied = "head tied to the embedding" if model.tied_embeddings else "head of its own"
    rows = [
        _fact("parameters", model.parameters, "element", f"text + encoders, {tied}, MTP left out"),
        _fact("text_parameters", model.text_parameters, "element", "layers + embedding + head + norms"),
        _fact("active_parameters", model.active_parameters, "element", "text, of routed experts the top-k"),
    ]
    rows += [
        _fact(f"{tower.name}_parameters", tower.parameters, "element", tower.note or "blocks + projector")
        for tower in model.towers
    ]
    if model.mtp_parameters:
        rows.append(_fact("mtp_parameters", model.mtp_parameters, "element", "multi-token prediction as shipped"))
    note = model.checkpoint.extra_note
    shipped = "parameters + MTP" + (f"; {note}" if note else "")
    rows += [
        _fact("checkpoint_parameters", model.checkpoint_parameters, "element", shipped),
        _fact("checkpoint_bytes", round(model.checkpoint_bytes), "byte", f"{model.checkpoint.name}, scales included"),
        _fact("weights_bytes", round(model.weights_bytes()), "byte", "as loaded on one GPU, MTP left out"),
        _fact("vocab_size", model.vocab_size, "token", ""),
        _fact("hidden_size", model.hidden_size, "element", ""),
        _fact("max_positions", model.max_positions or "", "token", ""),
    ]
    return rows


def _cache_rows(model: Model) -> list[dict[str, object]]:
    per_token = model.kv_bytes_per_token("bf16")
    at = model.kv_bytes(LISTED_CONTEXT, "bf16")
    return [
        _fact("kv_bytes_per_token", per_token, "byte", "sum over layers, 16 bit, no window full yet"),
        _fact("kv_bytes_at_8192_tokens", at, "byte", "windows and compression applied, states included"),
        _fact("state_bytes", model.state_bytes(), "byte", f"recurrent state of one request, {model.state_dtype}"),
    ]


def _layer_rows(model: Model) -> list[dict[str, object]]:
    rows = []
    for layer in model.layers:
        mixer, feed = layer.mixer, layer.feed_forward
        shape = f"{mixer.heads} heads, {mixer.kv_heads} KV, {mixer.head_dim}/{mixer.value_dim}" if mixer.heads else ""
        window = f", window {mixer.window}" if mixer.window else ""
        experts = f"{feed.experts} experts, top {feed.top_k}" if feed.experts else feed.kind
        formats = sorted({linear.format for linear in layer.linears})
        rows.append(
            _fact(
                f"{layer.count} x {mixer.kind}{' ' + mixer.recurrence if mixer.recurrence else ''} + {feed.kind}",
                layer.parameters,
                "element",
                f"{shape}{window}; {experts}; stored as {', '.join(formats)}",
            )
        )
    return rows
