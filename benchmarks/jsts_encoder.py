"""Makes a small Japanese encoder from the training sentences of JSTS, for `docs/angle.md`; it is not shipped.

    python -m benchmarks.jsts_encoder jsts/train-v1.3.json --work /tmp/ja --steps 1500

A unigram tokenizer of its own and the pre-training of `trainables.embedded_encoder.make`; no label is read, and no
sentence of the other splits. The encoder is the folder `model` in `--work`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from trainables.data import local
from trainables.embedded_encoder import make


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Unigram over NFKC text, which needs no spaces between words; punctuation stands alone."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    tokenizer.decoder = decoders.Fuse()
    trainer = trainers.UnigramTrainer(
        vocab_size=make.VOCABULARY - 500, special_tokens=list(make.SPECIAL), unk_token=make.UNK, max_piece_length=3,
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in (make.CLS, make.SEP)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{make.CLS} $A {make.SEP}", pair=f"{make.CLS} $A {make.SEP} $B {make.SEP}", special_tokens=ids
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, pad_token=make.PAD, unk_token=make.UNK, cls_token=make.CLS,
        sep_token=make.SEP, mask_token=make.MASK,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="JSTS training file")
    parser.add_argument("--work", type=Path, required=True, help="folder for corpus, checkpoints and model")
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    if not (options.work / "chunks.npy").is_file():
        rows = (row for _, row in local.jsonl(options.file))
        texts = list(dict.fromkeys(text for row in rows for text in (row["sentence1"], row["sentence2"])))
        tokenizer = make_tokenizer(texts)
        tokenizer.save_pretrained(options.work / "tokenizer")
        np.save(options.work / "chunks.npy", make.make_chunks(iter(texts), tokenizer))
    make.pretrain(options.work, options.steps, tokens=2_048, peak=2e-3, mask_ratio=0.3, seed=1)


if __name__ == "__main__":
    main()
