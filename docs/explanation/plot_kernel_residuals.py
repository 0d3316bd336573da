"""Draw predicted over measured kernel times by size, one panel a group, as SVG without other packages.

python docs/explanation/plot_kernel_residuals.py [TABLES] > docs/explanation/kernel-residuals.svg
"""

import itertools
import sys
from pathlib import Path

import numpy as np

from sizing.validation.kernels import APART, GOALS, compare, kernel_tables

WIDTH, HEIGHT, MARGIN, COLUMNS, BINS = 300, 170, 38, 3, 18
LOW, HIGH = 0.5, 2.0  # of predicted over measured
FAST, SLOW = 2e-6, 5e-2  # s


def x_of(seconds: float) -> float:
    return MARGIN + (np.log(seconds / FAST) / np.log(SLOW / FAST)) * (WIDTH - MARGIN - 8)


def y_of(ratio: float) -> float:
    share = np.log(np.clip(ratio, LOW, HIGH) / LOW) / np.log(HIGH / LOW)
    return 22 + (1.0 - share) * (HEIGHT - 22 - 26)


def path(points: list[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def panel(title: str, time_s: np.ndarray, ratio: np.ndarray, at: tuple[int, int]) -> str:
    edges = np.geomspace(FAST, SLOW, BINS + 1)
    mid, ten, ninety = [], [], []
    for low, high in itertools.pairwise(edges):
        inside = ratio[(time_s >= low) & (time_s < high)]
        if len(inside) >= 5:
            x = x_of(float(np.sqrt(low * high)))
            for line, share in ((mid, 50), (ten, 10), (ninety, 90)):
                line.append((x, y_of(float(np.percentile(inside, share)))))
    ticks = "".join(
        f'<text x="{MARGIN - 4}" y="{y_of(r) + 3:.1f}" text-anchor="end">{r:g}</text>'
        f'<line x1="{MARGIN}" x2="{WIDTH - 8}" y1="{y_of(r):.1f}" y2="{y_of(r):.1f}" stroke="#ddd"/>'
        for r in (0.5, 0.8, 1.0, 1.25, 2.0)
    )
    names = "".join(
        f'<text x="{x_of(s):.1f}" y="{HEIGHT - 10}" text-anchor="middle">{name}</text>'
        for s, name in ((1e-5, "10 us"), (1e-4, "100 us"), (1e-3, "1 ms"), (1e-2, "10 ms"))
    )
    band = path(ten + ninety[::-1]) + "Z" if mid else ""
    return (
        f'<g transform="translate({at[0]},{at[1]})"><text x="{MARGIN}" y="14" font-weight="bold">{title}</text>'
        f'{ticks}{names}<path d="{band}" fill="#9bc" fill-opacity="0.5"/>'
        f'<path d="{path(mid) if mid else ""}" fill="none" stroke="#036" stroke-width="1.5"/></g>'
    )


def main() -> None:
    found = compare(kernel_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
    panels = []
    for title, operations, _, _ in GOALS:
        kept = [
            item for item in found
            if len(item.table) and item.table.gpu not in APART
            and (item.table.operation in operations or item.table.operation.partition(".")[0] in operations)
        ]  # fmt: skip
        times = np.concatenate([item.table.time_s for item in kept])
        ratios = np.concatenate([item.ratio for item in kept])
        at = (len(panels) % COLUMNS * WIDTH, len(panels) // COLUMNS * HEIGHT)
        panels.append(panel(title, times, ratios, at))
    height = -(-len(panels) // COLUMNS) * HEIGHT
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="9">{"".join(panels)}</svg>'
    )


if __name__ == "__main__":
    main()
