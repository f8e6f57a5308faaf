"""Counts in sentences for people."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count and what it counts: `1 record`, `2,000 records`. `plural`: where an s does not make it."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
