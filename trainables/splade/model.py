"""The SPLADE encoder: a masked-LM model whose head's outputs, pooled over tokens, are the sparse vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from trainables import encoders, vocabulary
from trainables.encoders import Tokens
from trainables.splade.pooling import max_log1p_relu

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def rescale_head(mlm: PreTrainedModel, k: float, rescale: Literal["tied", "untied"], rescale_bias: bool) -> None:
    """W_head <- W_head / k in place (arXiv 2606.18811), before the optimiser sees the parameters.

    `tied` keeps the head's matrix the one of the input embeddings. `untied` gives the head its own copy first
    and says so in the model's config, so that saving and loading keep them apart. ValueError where `tied` is
    asked of a model whose head has a matrix of its own, or `rescale_bias` of a head without bias.
    """
    decoder = mlm.get_output_embeddings()
    tied = decoder.weight is mlm.get_input_embeddings().weight
    if rescale == "tied" and not tied:
        raise ValueError("rescale is 'tied', but this backbone's head has a matrix of its own; use 'untied'")
    if rescale_bias and decoder.bias is None:
        raise ValueError("rescale_bias is true, but this backbone's head has no bias; use false")
    if rescale == "untied" and tied:
        untie_head(mlm)
    with torch.no_grad():
        decoder.weight.div_(k)
        if rescale_bias:
            decoder.bias.div_(k)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """How large the matrix of a masked-LM head is; silent outputs, whose rows are zeros, count for nothing."""

    frobenius: float
    """Root of the sum of all squares."""
    row: float
    """Root of the mean squared length of the rows, by which a state of unit length can move a logit, typically."""
    spectral: float
    """Largest singular value."""

    @classmethod
    @torch.no_grad()
    def of(cls, model: SpladeEncoder) -> HeadNorms:
        weight = model.decoder.weight.float()
        frobenius = float(torch.linalg.vector_norm(weight, dtype=torch.float64))
        # Of the small Gram matrix: the singular values of (V, D) itself take many times as long.
        wide = weight.shape[1] > weight.shape[0]
        gram = weight @ weight.T if wide else weight.T @ weight
        spectral = float(torch.linalg.eigvalsh(gram)[-1].clamp(min=0).sqrt())
        return cls(frobenius, frobenius / math.sqrt(model.terms), spectral)


def untie_head(mlm: PreTrainedModel) -> None:
    """Give the decoder parameters that it shares with nothing.

    Its bias too: BERT-like heads hold the bias under two names, and once `tie_word_embeddings` is false
    transformers saves one of them and loads neither into the decoder.
    """
    decoder = mlm.get_output_embeddings()
    decoder.weight = nn.Parameter(decoder.weight.detach().clone())
    if decoder.bias is not None:
        decoder.bias = nn.Parameter(decoder.bias.detach().clone())
    mlm.config.tie_word_embeddings = False


class SpladeEncoder(nn.Module):
    """Texts as vectors over the vocabulary, w_j = max_i log(1 + relu(h_i . W_j + b_j)) over unmasked tokens i."""

    def __init__(self, mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
        """Outputs that none of the tokenizer's tokens stands for are silenced; without a tokenizer all are terms.

        ValueError where the model's logits are not its decoder's outputs alone.
        """
        super().__init__()
        self.mlm = mlm
        self._check_head()
        size = self.decoder.weight.shape[0]
        used = torch.ones(size, dtype=torch.bool) if tokenizer is None else vocabulary.terms(tokenizer, size)
        self.terms = int(used.sum())
        """Coordinates of a vector that can be other than 0."""
        self._silence(~used)

    @property
    def decoder(self) -> nn.Linear:
        """The last layer of the masked-LM head, (V, D)."""
        return self.mlm.get_output_embeddings()

    def forward(self, tokens: Tokens) -> torch.Tensor:
        """Vectors (texts, V) of tokens (texts, L), in float32 whatever autocast does inside."""
        decoder = self.decoder
        return max_log1p_relu(self.hidden(tokens), tokens.mask, decoder.weight, decoder.bias)

    @torch.no_grad()
    def _silence(self, outputs: torch.Tensor) -> None:
        """Keep outputs (V,) bool at 0, here and for whoever opens the export: a row of zeros is not above 0, so it
        gets no gradient and stays as it is; and as a token's embedding it is not looked up.
        """
        if outputs.any():
            outputs = outputs.to(self.decoder.weight.device)
            self.decoder.weight[outputs] = 0
            if self.decoder.bias is not None:
                self.decoder.bias[outputs] = 0

    def hidden(self, tokens: Tokens) -> torch.Tensor:
        """The states (texts, L, D) that the decoder is given.

        The model runs as it is, whatever its architecture, but for its decoder, which is handed no tokens.
        """
        given: list[torch.Tensor] = []

        def keep(_: nn.Module, arguments: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            given.append(arguments[0])
            return (arguments[0][:, :0],)

        with self.decoder.register_forward_pre_hook(keep):
            self.mlm(input_ids=tokens.ids, attention_mask=tokens.mask)
        return given[0]

    @torch.no_grad()
    def _check_head(self) -> None:
        decoder = self.decoder
        training = self.mlm.training
        self.mlm.eval()
        ids = torch.arange(2, 6, device=decoder.weight.device).view(1, -1)
        tokens = Tokens(ids, torch.ones_like(ids))
        logits = self.mlm(ids, attention_mask=tokens.mask).logits
        try:
            same = torch.allclose(decoder(self.hidden(tokens)), logits)
        except (IndexError, RuntimeError, AttributeError):
            same = False
        self.mlm.train(training)
        if not same:
            raise ValueError(
                f"{type(self.mlm).__name__} does more to its logits than its output embeddings say; "
                "SPLADE needs a masked-LM head that ends in one linear layer"
            )


def export(model: SpladeEncoder, tokenizer: PreTrainedTokenizerBase, folder: Path, lengths: dict[str, int]) -> None:
    """Write a folder that `AutoModelForMaskedLM` and `SparseEncoder(folder)` of sentence-transformers open.

    `lengths` are `query_length` and `document_length`, which the latter cuts texts to.
    """
    encoders.export(model.mlm, tokenizer, folder)
    pooling = {"pooling_strategy": "max", "activation_function": "relu"}
    encoders.export_modules(
        folder,
        {"transformer_task": "fill-mask", "max_seq_length": lengths["document_length"], **lengths},
        [("sentence_transformers.sparse_encoder.modules.SpladePooling", pooling)],
        {"model_type": "SparseEncoder", "similarity_fn_name": "dot"},
    )
