"""A plan, or any rows, as text: table, CSV, JSON, Markdown."""
