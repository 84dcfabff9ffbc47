"""The encoder with its masked-LM head, the decoder beside it, and what is written of them at the end."""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainables.encoders import Tokens
from trainables.retromae.decoder import Backbone, Decoder
from trainables.retromae.losses import cross_entropy_sum

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class RetroMAE(nn.Module):
    """A masked-LM model whose first token's last state is the embedding of a text, and a decoder, or none."""

    def __init__(self, mlm: PreTrainedModel, decoder: Decoder | None) -> None:
        """ValueError where the model's logits are not what a linear layer makes of single states of its backbone, and
        as `Decoder.check`.
        """
        super().__init__()
        self.mlm, self.decoder = mlm, decoder
        self._check_head()
        if decoder is not None:
            decoder.check(self.backbone)

    @property
    def backbone(self) -> Backbone:
        return self.mlm.base_model

    def forward(self, tokens: Tokens) -> torch.Tensor:
        """Embeddings (B, D) of texts, in the parameters' precision whatever autocast does inside."""
        return self.embedding(self.states(tokens.ids, tokens.mask))

    def states(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """States (B, L, D) of the backbone's last layer."""
        return self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state

    def embedding(self, states: torch.Tensor) -> torch.Tensor:
        return states[:, 0].to(next(self.mlm.parameters()).dtype)

    def cross_entropy(self, states: torch.Tensor, targets: torch.Tensor, chunk: int) -> torch.Tensor:
        """Sum over the rows of states (N, D) of the masked-LM head's loss on targets (N,)."""
        output = self.mlm.get_output_embeddings()
        return cross_entropy_sum(_head(self.mlm, states), output.weight, output.bias, targets, chunk)

    def unused_in_finetuning(self) -> list[nn.Parameter]:
        """Parameters of the head and the decoder that the backbone does not share."""
        used = {id(parameter) for parameter in self.backbone.parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in used]

    @torch.no_grad()
    def _check_head(self) -> None:
        output = self.mlm.get_output_embeddings()
        training = self.mlm.training
        self.mlm.eval()
        ids = torch.arange(2, 6, device=output.weight.device).view(1, -1)
        mask = torch.ones_like(ids)
        states, logits = self.states(ids, mask), self.mlm(input_ids=ids, attention_mask=mask).logits
        try:
            same = torch.allclose(output(_head(self.mlm, states[0])), logits[0], atol=1e-5)
        except (IndexError, RuntimeError, AttributeError, TypeError):
            same = False
        self.mlm.train(training)
        if not same:
            raise ValueError(
                f"{type(self.mlm).__name__} computes its logits from more than its backbone's last states; RetroMAE "
                "needs a masked-LM head that takes one state at a time and ends in one linear layer"
            )


class _Given(nn.Module):
    """A module that takes the place of a backbone whose states are known already."""

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> Any:
        return _output()(last_hidden_state=inputs_embeds)


@cache
def _output() -> Any:
    from transformers.modeling_outputs import BaseModelOutput

    class States(BaseModelOutput):
        """The output of a backbone that has states alone: what an architecture's own kind of output holds besides them
        reads as nothing."""

        def __getattr__(self, name: str) -> None:
            if name.startswith("_"):
                raise AttributeError(name)

    return States


def _head(mlm: PreTrainedModel, states: torch.Tensor) -> torch.Tensor:
    """What the model's output layer is given, (N, E), for states (N, D) of its backbone or of the decoder.

    The model runs as it is, whatever its architecture, but without its backbone, and its output layer is handed no
    tokens.
    """
    head = copy.copy(mlm)  # shares its parameters
    head._modules = dict(mlm._modules) | {mlm.base_model_prefix: _Given()}
    given: list[torch.Tensor] = []

    def keep(_: nn.Module, arguments: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        given.append(arguments[0])
        return (arguments[0][:, :0],)

    with mlm.get_output_embeddings().register_forward_pre_hook(keep):
        head(inputs_embeds=states.unsqueeze(0))
    return given[0][0]
