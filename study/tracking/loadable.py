"""What MLflow runs to open a model that a study has kept there, and to encode texts with it.

MLflow keeps this file beside the model, so that it is whole by itself: it needs sentence-transformers, and nothing of
this project.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pandas
from mlflow.pyfunc import PythonModel


class Retriever(PythonModel):
    """Texts as vectors: a list of numbers each, or a dictionary from term to weight where the model is sparse."""

    def load_context(self, context: Any) -> None:
        from sentence_transformers import SentenceTransformer, SparseEncoder

        folder = Path(context.artifacts["model"])
        about = json.loads((folder / "config_sentence_transformers.json").read_text())
        self.sparse = about.get("model_type") == "SparseEncoder"
        self.model: Any = (SparseEncoder if self.sparse else SentenceTransformer)(str(folder))

    def predict(self, context: Any, model_input: pandas.DataFrame, params: dict[str, Any] | None = None) -> list[Any]:
        """The vectors of the texts in the first column, as queries or as documents: `params["side"]`."""
        side = (params or {}).get("side", "query")
        if side not in ("query", "document"):
            raise ValueError(f"side is {side!r}; accepted are 'query' and 'document'")
        encode = self.model.encode_query if side == "query" else self.model.encode_document
        texts = [str(text) for text in model_input.iloc[:, 0]]
        vectors = encode(texts, convert_to_tensor=True)
        if not self.sparse:
            return vectors.cpu().tolist()
        return [dict(terms) for terms in self.model.decode(vectors)]


mlflow.models.set_model(Retriever())
