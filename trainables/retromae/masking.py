"""What the enhanced decoder may look at: for every position of every text a context of its own.

Pairs are drawn independently rather than an exact number per row: so the rate is the ratio for texts of every
length, where a number would have to be rounded, and one comparison per pair is all it takes. Each text has a
stream of its own, so that neither its neighbours, nor padding, nor the number of workers change its masks.
A pair takes 16 random bits: drawing is what takes the time, and four pairs share a draw.
"""

from __future__ import annotations

import torch


def visible_sets(mask: torch.Tensor, ratio: float, seeds: torch.Tensor) -> torch.Tensor:
    """(B, L, L) bool: whether position i (row) sees position j (column) (arXiv 2205.12035, section 3.3).

    mask (B, L) is 1 on tokens, which come first, and 0 on padding; seeds (B,) int64, one for each text. A pair of
    tokens of one text is visible with probability 1 - ratio, to the nearest 1/65536 that is neither 0 nor 1. No
    position sees itself, all but the first see the first, which is the sentence embedding, and none sees padding.
    Rows of padding see the first position alone.
    """
    texts, length = mask.shape
    visible = torch.zeros(texts, length, length, dtype=torch.bool, device=mask.device)
    generator = torch.Generator(mask.device)
    below = min(max(round((1 - ratio) * 2**16), 1), 2**16 - 1) - 2**15
    for text, (tokens, seed) in enumerate(zip(mask.sum(1).tolist(), seeds.tolist(), strict=True)):
        generator.manual_seed(seed)
        draws = torch.empty(-(-tokens * tokens // 4), dtype=torch.int64, device=mask.device)
        draws.random_(-(2**63), None, generator=generator)
        drawn = draws.view(torch.int16)[: tokens * tokens] < below
        visible[text, :tokens, :tokens] = drawn.view(tokens, tokens)
    visible.diagonal(dim1=1, dim2=2).fill_(False)
    visible[:, 1:, 0] = True
    return visible
