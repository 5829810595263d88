"""Vectors of meaning from the `semantic` extra: static word vectors that ship in its package."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from memtui.pruning.clusters import Vectors


@cache
def static_vectors() -> Vectors | None:
    """Return what turns texts into vectors of 256 numbers; None where the extra is not installed.

    Nothing is downloaded: the weights lie in the package.
    """
    try:
        import wordllama
    except ModuleNotFoundError:
        return None
    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)

    def vectors(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        encodable = [text.encode("utf-8", "replace").decode() for text in texts]
        return [[float(number) for number in row] for row in model.embed(encodable)]

    return vectors
