"""What is to be said about an answer beside its numbers: requests that are refused, engines that would not start."""

from sizing.answer import Evaluation
from sizing.deployment import Deployment
from sizing.workload import Workload

SAMPLED = 20_000
WORTH_SAYING = 1e-3
"""Requests drawn to see how many are too long, and the share from which on it is said. [request], [1]"""


def remarks(evaluation: Evaluation, workload: Workload) -> tuple[str, ...]:
    """What an engine would do with this deployment and traffic that the closed form takes for served.

    Parameters
    ----------
    evaluation
        A candidate that holds its targets.
    workload
        The traffic.
    """
    deployment, refusal = evaluation.deployment, evaluation.memory.refusal
    start = f"{deployment.gpu.id}: {refusal}" if refusal else ""
    return tuple(text for text in (start, beyond_context(deployment, workload)) if text)


def beyond_context(deployment: Deployment, workload: Workload) -> str:
    """How many requests are longer than the context; empty where next to none are.

    Parameters
    ----------
    deployment, workload
        Whose context, and the traffic.
    """
    most = context_tokens(deployment)
    shared = workload.mean_input_tokens - workload.input_length.mean
    if not most or (workload.sessions is None and _longest(workload) + shared <= most):
        return ""
    drawn = workload.sample(SAMPLED)
    beyond = float((drawn.input_tokens + drawn.output_tokens > most).mean())
    if beyond < WORTH_SAYING:
        return ""
    return (
        f"{beyond:.1%} of requests are longer than {most:,} tokens, the context of {deployment.model.name}: an "
        "engine refuses them, and percentile targets are missed by as many"
    )


def context_tokens(deployment: Deployment) -> int:
    """Longest request that an engine takes by its settings or the model; 0 if neither says. [token]

    Parameters
    ----------
    deployment
        Model and settings.
    """
    return deployment.settings.max_model_len or deployment.model.max_positions or 0


def _longest(workload: Workload) -> float:
    return workload.input_length.most + workload.output_length.most
