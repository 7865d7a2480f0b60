"""A corpus that its own text can mend the vectors of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

THINGS = ["lamp", "violin", "glacier", "orchard", "compass", "parrot", "tunnel", "helmet", "lighthouse", "beetle"]
PLACES = ["Lisbon", "Oslo", "Kyoto", "Cairo", "Lima", "Delhi", "Quito", "Rome", "Hanoi", "Perth", "Dakar", "Minsk"]
PLACES += ["Tunis", "Sofia", "Riga", "Bern", "Bogota", "Nairobi"]
NOISE = ["quiet", "river", "stone", "window", "paper", "market", "garden", "silver", "winter", "evening", "bridge"]
NOISE += ["copper", "letter", "forest", "candle", "harbour", "music", "yellow", "basket", "corner", "thunder", "velvet"]


def write_corpus(folder: Path, noise: Sequence[str] = NOISE, count: int = 9) -> None:
    """180 documents whose sentences are about one thing each, and mostly of words that mean nothing, so many each."""
    drawn = random.Random(1)
    folder.mkdir()
    for thing in THINGS:
        for town in PLACES:
            lines = [f"The {thing} of {town}, {' '.join(drawn.sample(noise, count))}, was seen." for _ in range(5)]
            (folder / f"{thing}-{town}.txt").write_text(" ".join(lines) + "\n")
