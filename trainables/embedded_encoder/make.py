"""Makes the encoder in this folder: its tokenizer, then its pre-training on the text of installed packages.

    nice -n 19 python -m trainables.embedded_encoder.make --work /tmp/encoder --steps 7000

Unsupervised: docstrings, comments and code are separate texts, and no query is ever paired with a document.
Part of each batch trains masked language modelling, the rest, unmasked, a bag-of-words term on the max-pooled
logits, so that the head's own output names the terms of a text as a SPLADE vector does. A run that was stopped
carries on from its newest checkpoint; `--steps` may change as long as the decay has not begun.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from transformers import ModernBertConfig, ModernBertForMaskedLM, PreTrainedTokenizerFast

from trainables.data.embedded import embedded_texts

PAD, UNK, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY = 8_000
CHUNK = 64
"""Tokens of a training text, [CLS] and [SEP] included; longer texts are cut into several."""
SHORTEST = 8


def make_tokenizer(texts: Iterator[str]) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer of words and numbers, lower-cased.

    `maxRetries`, `max_retries` and "max retries" become the same two terms, so that prose and code share
    them. Punctuation is dropped: in code it would fill half of a short text and says nothing of its topic.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNK, max_input_chars_per_word=40))
    camel = Regex(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(camel, " "),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[^\p{L}\p{N}]+"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=False)]
    )
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), limit_alphabet=200, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in (CLS, SEP)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}", pair=f"{CLS} $A {SEP} $B {SEP}", special_tokens=ids
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=512,
        pad_token=PAD,
        unk_token=UNK,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> ModernBertForMaskedLM:
    """A random ModernBERT, 3 layers x 128, whose decoder is tied to its (normalised) input embeddings."""
    config = ModernBertConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=512,
        # Texts are short: attention over the whole text in every layer.
        layer_types=["full_attention"] * 3,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        tie_word_embeddings=True,
    )
    return ModernBertForMaskedLM(config)


def make_chunks(texts: Iterator[str], tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Token ids of the distinct texts, cut to CHUNK: (chunks, CHUNK) uint16, padded, sorted by length."""
    body = CHUNK - 2
    rows: set[tuple[int, ...]] = set()
    batch: list[str] = []

    def flush() -> None:
        for encoding in tokenizer.backend_tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            ids = encoding.ids
            # Pieces of equal length rather than full ones and a rest.
            count = -(-len(ids) // body)
            size = -(-len(ids) // count) if count else 0
            pieces = (tuple(ids[at : at + size]) for at in range(0, len(ids), size or 1))
            rows.update(piece for piece in pieces if len(piece) >= SHORTEST)
        batch.clear()

    for text in texts:
        batch.append(text)
        if len(batch) == 4_096:
            flush()
    flush()
    chunks = np.full((len(rows), CHUNK), tokenizer.pad_token_id, dtype=np.uint16)
    for at, row in enumerate(sorted(rows, key=lambda row: (len(row), row))):
        chunks[at, : len(row) + 2] = (tokenizer.cls_token_id, *row, tokenizer.sep_token_id)
    return chunks


def batch_of(step: int, chunks: np.ndarray, lengths: np.ndarray, tokens: int, seed: int) -> Tensor:
    """The batch of a step, (rows, length) int64: neighbours in length, about `tokens` in all, a function of
    the step and the seed."""
    rng = np.random.default_rng((seed, step))
    first = int(rng.integers(len(chunks)))
    rows = max(8, tokens // int(lengths[first]))
    start = max(0, min(first - rows * 2, len(chunks) - rows * 4))
    chosen = start + rng.choice(min(rows * 4, len(chunks)), size=min(rows, len(chunks)), replace=False)
    return torch.from_numpy(chunks[chosen][:, : lengths[chosen].max()].astype(np.int64))


def masked_lm_loss(model: ModernBertForMaskedLM, hidden: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy at the masked positions only, where labels (rows, length) are not -100."""
    chosen = labels != -100
    logits = model.decoder(model.head(hidden[chosen]))
    return nn.functional.cross_entropy(logits, labels[chosen])


def bag_of_words_loss(model: ModernBertForMaskedLM, hidden: Tensor, ids: Tensor, special: int) -> Tensor:
    """Multi-label softmax over the text's own terms on the max-pooled logits of ids (rows, length).

    log(1 + sum over absent terms of e^s) + log(1 + sum over present terms of e^-s): zero divides the terms
    of the text from all others, as the relu of SPLADE assumes. The first `special` ids are no terms.
    """
    # What is no term takes the state of the first one, which leaves the maximum as it is; masking the logits
    # would cost three more passes over rows x length x vocabulary.
    hidden = torch.where((ids >= special)[..., None], hidden, hidden[:, 1:2])
    pooled = model.decoder(model.head(hidden)).max(dim=1).values[:, special:]
    present = torch.zeros(ids.shape[0], VOCABULARY, dtype=torch.bool).scatter_(1, ids, True)[:, special:]
    zero = pooled.new_zeros(len(pooled), 1)
    above = torch.cat([zero, (-pooled).masked_fill(~present, float("-inf"))], 1).logsumexp(1)
    below = torch.cat([zero, pooled.masked_fill(present, float("-inf"))], 1).logsumexp(1)
    return (above + below).mean()


def bag_share_at(step: int) -> float:
    """Share of a batch's texts for the bag-of-words term, which is learnt in the first thousand steps while
    masked language modelling has hardly left the unigram entropy: from then on it only has to be kept."""
    return 0.5 if step < 1_000 else 0.125


def rate_at(step: int, steps: int, peak: float) -> float:
    """Trapezoid: linear warm-up over 3% of the steps, constant, linear decay over the last 30%."""
    return peak * min(1.0, (step + 1) / (0.03 * steps), max(0.02, (steps - step) / (0.3 * steps)))


def export(model: ModernBertForMaskedLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """The model and its tokenizer in `folder` in Hugging Face format, replaced as a whole."""
    aside = folder.with_name(folder.name + ".aside")
    shutil.rmtree(aside, ignore_errors=True)
    model.save_pretrained(aside)
    (aside / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(aside)
    # The name that every release of transformers knows, and nothing of where it was trained.
    settings = json.loads((aside / "tokenizer_config.json").read_text())
    settings = {key: settings[key] for key in sorted(settings) if key.endswith("_token") or "max" in key}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (aside / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


def pretrain(work: Path, steps: int, tokens: int, peak: float, mask_ratio: float, seed: int) -> None:
    """Trains to `steps`, with a checkpoint of everything in `work` every few minutes."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    chunks = np.load(work / "chunks.npy")
    lengths = (chunks != tokenizer.pad_token_id).sum(1)
    torch.manual_seed(seed)
    model = make_model(tokenizer).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.01)
    step, saved, began = 0, time.monotonic(), time.monotonic()
    if (work / "state.pt").is_file():
        state = torch.load(work / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    special = len(SPECIAL)
    while step < steps:
        ids = batch_of(step, chunks, lengths, tokens, seed)
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        split = len(ids) - max(1, round(len(ids) * bag_share_at(step)))
        masked = (torch.rand(ids[:split].shape, generator=generator) < mask_ratio) & (ids[:split] >= special)
        inputs = ids.clone()
        inputs[:split][masked] = tokenizer.mask_token_id
        hidden = model.model(input_ids=inputs, attention_mask=(ids != tokenizer.pad_token_id).long())[0]
        mlm = masked_lm_loss(model, hidden[:split], ids[:split].masked_fill(~masked, -100))
        bow = bag_of_words_loss(model, hidden[split:], ids[split:], special)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps, peak)
        optimizer.zero_grad(set_to_none=True)
        (mlm + bow).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 20 == 0:
            seconds = round(time.monotonic() - began)
            row = {"step": step, "mlm": round(mlm.item(), 3), "bow": round(bow.item(), 3), "seconds": seconds}
            print(json.dumps(row), flush=True)
        if step == steps or time.monotonic() - saved > 120:
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                work / "state.aside",
            )
            os.replace(work / "state.aside", work / "state.pt")
            export(model, tokenizer, work / "model")
            saved = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for corpus, checkpoints and model")
    parser.add_argument("--steps", type=int, default=7_000)
    parser.add_argument("--tokens", type=int, default=2_048, help="tokens in a batch")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--mask-ratio", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    if not (options.work / "chunks.npy").is_file():
        texts = list(dict.fromkeys(embedded_texts()))
        tokenizer = make_tokenizer(iter(texts))
        tokenizer.save_pretrained(options.work / "tokenizer")
        np.save(options.work / "chunks.npy", make_chunks(iter(texts), tokenizer))
    pretrain(options.work, options.steps, options.tokens, options.learning_rate, options.mask_ratio, options.seed)


if __name__ == "__main__":
    main()
