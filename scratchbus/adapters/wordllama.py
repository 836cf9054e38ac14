"""An embedder with the static word vectors of the package WordLlama, 256 numbers per text.

It needs the extra `meaning`. Nothing is downloaded. The model is English.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from scratchbus.errors import ScratchbusError


class WordLlamaEmbedder:
    """An `Embedder` for `recall`. Reuse it: loading takes a second, and a new one recomputes all vectors."""

    def __init__(self) -> None:
        """Load the model from the files of the package. Raises ScratchbusError without it."""
        try:
            import wordllama  # type: ignore[import-not-found, import-untyped, unused-ignore]  # ships no types
        except ImportError:
            raise ScratchbusError("WordLlamaEmbedder needs the extra `meaning`, which has WordLlama") from None
        files = Path(wordllama.__file__).parent
        self._model: Any = wordllama.WordLlama.load(cache_dir=files, disable_download=True)

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return the vector of each text, of length 1."""
        nonblank = [text if text.strip() else "." for text in texts]  # a blank text would give NaN
        return cast(list[list[float]], self._model.embed(nonblank, norm=True).tolist())
