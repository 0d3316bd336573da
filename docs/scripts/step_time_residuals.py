"""Residual plots of the step-time page: predicted over measured, on the curated rows or on a file of rows.

Run: python docs/scripts/step_time_residuals.py [FILE] [--configs DIR] [--to docs/explanation/figures]
"""

import argparse
import math
from pathlib import Path

from sizing.validation.scores import scores
from sizing.validation.serving import predict_row, read_rows

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")
WIDTH, HEIGHT, LEFT, BOTTOM = 760, 420, 60, 50


def number(text):
    """A cell as a number, or None."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def scatter(points, title, x_label, groups):
    """An SVG: x in logarithm, predicted over measured in logarithm from 1/4 to 4, a colour a group."""
    xs = [p[0] for p in points]
    low, high = math.log10(min(xs)), math.log10(max(xs) * 1.01)

    def place(x, ratio):
        across = LEFT + (math.log10(x) - low) / max(high - low, 1e-9) * (WIDTH - LEFT - 170)
        down = 30 + (0.5 - math.log(min(max(ratio, 0.25), 4.0), 16.0)) * (HEIGHT - 30 - BOTTOM)
        return across, down

    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/><text x="{LEFT}" y="18">{title}</text>',
    ]
    for ratio in (0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0):
        _, y = place(xs[0], ratio)
        shade = "#888" if ratio == 1.0 else "#ddd"
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - 170}" y1="{y:.1f}" y2="{y:.1f}" stroke="{shade}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{ratio:g}</text>')
    for x, ratio, group in points:
        across, down = place(x, ratio)
        colour = COLOURS[groups.index(group) % len(COLOURS)]
        lines.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="2.2" fill="{colour}" fill-opacity="0.55"/>')
    for i, group in enumerate(groups):
        y = 40 + 18 * i
        lines.append(f'<circle cx="{WIDTH - 155}" cy="{y}" r="5" fill="{COLOURS[i % len(COLOURS)]}"/>')
        lines.append(f'<text x="{WIDTH - 145}" y="{y + 4}">{group}</text>')
    for power in range(math.ceil(low), math.floor(high) + 1):
        across, _ = place(10.0**power, 1.0)
        lines.append(f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{10**power:g}</text>')
    lines.append(f'<text x="{LEFT}" y="{HEIGHT - 10}">{x_label}; up: predicted / measured</text></svg>')
    return "\n".join(lines)


def main():
    """Predict every row and write one plot a metric and driver."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--to", type=Path, default=Path("docs/explanation/figures"))
    asked = parser.parse_args()
    rows = read_rows(asked.file)
    found = scores(rows, [predict_row(row, asked.configs, draws=0) for row in rows])
    asked.to.mkdir(parents=True, exist_ok=True)
    for metric, column, label in (
        ("tpot_ms", "load_value", "users in a closed loop"),
        ("ttft_ms", "load_value", "users in a closed loop"),
        ("ttft_ms", "isl", "input tokens"),
        ("output_tok_s", "osl", "output tokens"),
    ):
        chosen = [s for s in found if s.metric == metric and not s.kv_short and not s.assumed]
        points = [(number(s.labels.get(column)), s.ratio, s.labels.get("engine") or "not stated") for s in chosen]
        points = [p for p in points if p[0] and 0 < p[0] < math.inf]
        if points:
            groups = sorted({p[2] for p in points})
            text = scatter(points, f"{metric}: {len(points)} rows", label, groups)
            (asked.to / f"{metric}-by-{column}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
