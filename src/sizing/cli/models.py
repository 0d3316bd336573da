"""The catalogue of models."""

from typing import Annotated

import typer

from sizing.cli._options import Format, OutFile, OwnCatalog


def command(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this one with its sources (name, folder or config.json).", show_default=False),
    ] = None,
    family: Annotated[str | None, typer.Option(help="Only names that hold this text.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only with such layers: mla, sliding, linear, sparse, moe, ...")
    ] = None,
    max_parameters: Annotated[str | None, typer.Option(help="Only with at most so many parameters: 70G.")] = None,
    format: Format = "table",
    out: OutFile = None,
    catalog: OwnCatalog = None,
) -> None:
    """List models, or show one with its sources."""
    from sizing.architecture.listing import model_fact_rows, model_rows
    from sizing.catalog import overlay
    from sizing.cli.output import emit
    from sizing.reports.tabular import render_rows
    from sizing.units import count

    if catalog is not None:
        overlay(catalog)
    if name is None:
        most = None if max_parameters is None else count(max_parameters)
        rows = model_rows(family, kind, most)
        emit(render_rows(rows, format=format, title=f"{len(rows)} models"), out)
        return
    rows, notes, title = model_fact_rows(name)
    emit(render_rows(rows, format=format, title=title, notes=notes), out)
