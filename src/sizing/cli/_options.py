"""Options that several commands share: what they are called, and what they say of themselves."""

from pathlib import Path
from typing import Annotated, Any

import typer

Text = str | None


def option(help_text: str, *names: str) -> Any:
    """An option that says nothing of a default: what is left out is an assumption, which the answer lists.

    Parameters
    ----------
    help_text
        One sentence.
    names
        Where they are not the parameter's own.
    """
    return typer.Option(*names, help=help_text, show_default=False)


Rps = Annotated[Text, option("Requests a second: 20, 20/s, 1200/min.")]
Output = Annotated[Text, option("Mean output tokens.")]
Shape = Annotated[Text, option("Shipped request shape, in place of lengths: chat, rag, agents, ...")]
Cv = Annotated[Text, option("CV of the gaps between arrivals: 1 Poisson, above it bursts.")]
Percentile = Annotated[Text, option("Share of requests that must meet the targets, in percent; mean if left out.")]
TtftPercentile = Annotated[Text, option("The same for TTFT alone.")]
TpotPercentile = Annotated[Text, option("The same for TPOT alone.")]
Stages = Annotated[Text, option("Pipeline stages.")]
AttentionRanks = Annotated[Text, option("Data-parallel ranks of attention inside a replica; experts are shared.")]
ExpertRanks = Annotated[Text, option("Expert parallel ranks, at most --tp times --dp.")]
Format = Annotated[str, typer.Option(help="table, csv, json or md.")]
OutFile = Annotated[Path | None, option("Write to this file.", "--out", "-o")]
PredictionsFile = Annotated[Path | None, option("Write per-row predictions to this CSV file.", "--out", "-o")]
Constants = Annotated[str, typer.Option(help="measured, rule-of-thumb, or a TOML file.")]
OwnCatalog = Annotated[Text, option("TOML file with GPUs, models and prices of your own.")]
