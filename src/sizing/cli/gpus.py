"""The catalogue of accelerators."""

from typing import Annotated

import typer

from sizing.cli._options import Format, OutFile, OwnCatalog


def command(
    name: Annotated[
        str | None, typer.Argument(help="Show this one with its sources; all if left out.", show_default=False)
    ] = None,
    vendor: Annotated[str | None, typer.Option(help="Only of this vendor: NVIDIA, AMD, ...")] = None,
    min_memory: Annotated[str | None, typer.Option(help="Only with at least this much memory: 80GB.")] = None,
    format: Format = "table",
    out: OutFile = None,
    catalog: OwnCatalog = None,
) -> None:
    """List accelerators, or show one with its sources."""
    from sizing.catalog import overlay
    from sizing.catalog.listing import gpu_facts, gpu_rows
    from sizing.cli.output import emit
    from sizing.reports.tabular import render_rows
    from sizing.units import size_bytes

    if catalog is not None:
        overlay(catalog)
    if name is None:
        least = 0.0 if min_memory is None else size_bytes(min_memory)
        emit(render_rows(gpu_rows(vendor, least), format=format, title="Accelerators, dense peaks"), out)
        return
    rows, notes, title = gpu_facts(name)
    emit(render_rows(rows, format=format, title=title, notes=notes), out)
