"""A token by the Transformers library itself, with random weights: the kernels it launches from Python."""

from collections.abc import Iterator
from typing import Any

import torch

from profilers.bench import Bench
from profilers.kernel import Case, Reading, Unsupported, kernel
from profilers.kernels.scenarios import count_kernels, gaps
from profilers.plan import Plan
from profilers.shapes import built_in

MODEL, TOY = "Qwen/Qwen3-8B", "toy/dense"


def _cases(plan: Plan) -> Iterator[Case]:
    if plan.scenarios or plan.toy:
        shape = {"model": TOY if plan.toy else MODEL, "context": 4 if plan.toy else 1024}
        yield Case(kernel="scenario.transformers", shape=shape, priority=1)


@kernel("scenario.transformers", cases=_cases)
def transformers_token(case: Case, bench: Bench) -> Reading:
    """Kernels and time of one token for one user, cache grown by the library's own cache."""
    try:
        import transformers
    except ImportError:
        raise Unsupported("needs transformers, which is not installed") from None
    config = dict(built_in()[str(case.shape["model"])])
    del config["source"]
    made = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    with torch.inference_mode():
        with torch.device(bench.device):
            model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16).eval()
            prompt = torch.randint(0, made.vocab_size, (1, int(case.shape["context"])))
        return _measure(model, prompt, bench, f"transformers {transformers.__version__}")


def _measure(model: Any, prompt: torch.Tensor, bench: Bench, name: str) -> Reading:
    cache = model(prompt, use_cache=True).past_key_values

    def token() -> torch.Tensor:
        logits: torch.Tensor = model(prompt[:, -1:], past_key_values=cache, use_cache=True).logits
        return logits[:, -1].argmax(dim=-1)

    token()
    samples = {"token_s": gaps([token] * (3 if bench.toy else 20), bench), **count_kernels(token, bench)}
    return Reading(samples=samples, implementation=name, facts={"layers": model.config.num_hidden_layers})
