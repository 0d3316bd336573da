"""Small traces in the published formats, written by hand: the columns and units of each format."""

import gzip
import json
from pathlib import Path

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"


def write(path: Path, lines: list[str], *, end: str = "\n") -> Path:
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def clock(second: int) -> str:
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def azure_2023(path: Path, rows: int = 50) -> Path:
    """Seven digits, no zone, no newline at the end."""
    body = [f"2023-11-16 {clock(i)}.9799600,{100 + i},{10 + i % 7}" for i in range(rows)]
    return write(path, [AZURE, *body], end="")


def azure_2024(path: Path, rows: int = 50) -> Path:
    """A zone, and a fraction only where it is not zero."""
    body = [
        f"2024-05-10 00:{clock(i)[3:]}{'.250000' if i % 2 else ''}+00:00,{100 + i},{10 + i % 7}" for i in range(rows)
    ]
    return write(path, [AZURE, *body])


def objects(path: Path, rows: list[dict]) -> Path:
    text = "\n".join(json.dumps(r) for r in rows) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def mooncake_rows(requests: int = 40, block: int = 512) -> list[dict]:
    """Conversations of four turns behind a common first block; stamps at whole 3,000 ms."""
    rows, fresh = [], 1
    held: dict[int, list[int]] = {}
    for i in range(requests):
        ids = held.setdefault(i % 10, [0])
        ids = [*ids, fresh, fresh + 1]
        fresh += 2
        held[i % 10] = ids
        length = block * len(ids) - 100
        rows.append({"timestamp": i // 10 * 3000, "input_length": length, "output_length": 300, "hash_ids": ids})
    return rows
