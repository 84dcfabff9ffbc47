"""Whole words with tokenizers of every kind, masks of given rates, and the independence of every text."""

import math
import re
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, BertJapaneseTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

from trainables.data.masking import (
    FREE_STREAM,
    MaskableTokens,
    Masker,
    draws,
    text_seeds,
    unigram_entropy,
)
from trainables.data.text import HeldTexts
from trainables.data.word_boundaries import marked_starts
from trainables.encoders import EMBEDDED

CPU = torch.device("cpu")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

TEXTS = [
    "The gardeners' unbelievable tulips weren't watered; naïve visitors photographed them (twice!) in Zürich.",
    "Retrieval-oriented pretraining reconstructs sentences from embeddings, e.g. of 2022 or 15.5 dimensions.",
    "  Indented:\n\treturn self.unpredictable_names[0]  # and a comment about   whitespace  ",
    "東京は日本の首都です。 Tokyo is the capital; 人口 is large 🎉🎉 indeed.",
    "ภาษาไทย ไม่มีช่องว่าง but English has.",
    "word",
]
CORPUS = [*TEXTS, *["gardens and visitors are watered in sentences of the capital dimension"] * 3] * 4


def fast(tokenizer, name):
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    template = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    post = [processors.ByteLevel(trim_offsets=True), template] if name == "byte-level, trimmed" else [template]
    tokenizer.post_processor = processors.Sequence(post)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=512,
    )  # fmt: skip


def wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL, show_progress=False)
    )
    return tokenizer


def byte_level(split=True):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=330,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if not split:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizer


def sentencepiece(split=True):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.UnigramTrainer(vocab_size=150, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False),
    )
    if not split:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    return tokenizer


def sentencepiece_bpe():
    """As Llama's: the normaliser writes the `▁`, nothing is split, and rare characters fall back to bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="[UNK]"))
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=430, special_tokens=[*SPECIAL, *bytes_], limit_alphabet=60, show_progress=False),
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = None
    return tokenizer


KINDS = {
    "wordpiece": wordpiece,
    "byte-level": byte_level,
    "byte-level, trimmed": byte_level,
    "byte-level, not split": lambda: byte_level(split=False),
    "sentencepiece": sentencepiece,
    "sentencepiece, not split": lambda: sentencepiece(split=False),
    "sentencepiece bpe": sentencepiece_bpe,
}


@pytest.fixture(scope="module")
def embedded():
    return Masker(AutoTokenizer.from_pretrained(EMBEDDED))


@pytest.fixture(scope="module", params=[*KINDS, "embedded"])
def masker(request, embedded):
    name = request.param
    return embedded if name == "embedded" else Masker(fast(KINDS[name](), name))


# --- words ---------------------------------------------------------------------------------------------


def test_tokens_of_one_written_word_are_one_word(masker):
    """Runs of letters, in lower case behind the first, of scripts that part their words."""
    assert masker.whole_words
    tokens = masker.encode(TEXTS, 512, CPU)
    offsets = masker.tokenizer(TEXTS, return_offsets_mapping=True)["offset_mapping"]
    several = 0
    for row, text in enumerate(TEXTS):
        owners = {}
        for run in re.finditer(r"(?<![A-Za-zï-ü])[A-Za-zï-ü][a-zï-ü]*(?![A-Za-zï-ü])", text):
            inside = {
                place
                for place, (begin, end) in enumerate(offsets[row])
                if begin < run.end() and end > run.start() and not tokens.special[row, place]
            }
            found = {int(tokens.word[row, place]) for place in inside}
            assert len(found) <= 1, (run.group(), found)
            several += len(inside) > 1
            for word in found:
                # Two written words are one only where a token has parts of both.
                assert all(inside & others for others in owners.get(word, ())), (run.group(), owners[word])
                owners.setdefault(word, []).append(inside)
    assert several > 10


def test_words_are_numbered_in_order_and_special_tokens_have_none(masker):
    tokens = masker.encode(TEXTS, 512, CPU)
    assert torch.equal(tokens.word < 0, tokens.special)
    assert tokens.special[:, 0].all()
    assert tokens.special[tokens.mask == 0].all()
    for row in range(len(TEXTS)):
        numbers = tokens.word[row][~tokens.special[row]]
        assert torch.equal(numbers.unique(), torch.arange(int(numbers.max()) + 1))
        assert (numbers.diff() >= 0).all()


def test_scripts_without_spaces_are_masked_by_tokens():
    masker = Masker(fast(sentencepiece_bpe(), ""))
    text = "東京は日本の首都です"
    tokens = masker.encode([text], 512, CPU)
    words = int(tokens.word.max()) + 1
    assert words > 3
    offsets = masker.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    spans = {}
    for place, span in enumerate(offsets):
        if not tokens.special[0, place]:
            spans.setdefault(tuple(span), set()).add(int(tokens.word[0, place]))
    # The bytes of one character are never parted.
    assert all(len(found) == 1 for found in spans.values())


def test_slow_tokenizers_are_read_by_their_marks(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join([*SPECIAL, "un", "##believ", "##able", "tulip", "##s", "."]))
    masker = Masker(BertJapaneseTokenizer(str(vocabulary), word_tokenizer_type="basic"))
    assert not masker.tokenizer.is_fast
    assert masker.whole_words
    assert masker.encode(["unbelievable tulips."], 16, CPU).word.tolist() == [[-1, 0, 0, 0, 1, 1, 2, -1]]
    assert marked_starts(["▁un", "believ", "able", ",", "▁tul", "ips", ".", "▁", "2"], "▁") == [
        True, False, False, True, True, False, True, True, True,
    ]  # fmt: skip


def test_tokenizers_without_words_are_masked_by_tokens():
    masker = Masker(ByT5Tokenizer(mask_token="<mask>"))
    assert not masker.whole_words
    assert masker.encode(["tulip"], 16, CPU).word.tolist() == [[0, 1, 2, 3, 4, -1]]


@pytest.mark.parametrize("name", ["mask", "pad"])
def test_a_tokenizer_without_mask_or_padding_is_refused(name):
    tokenizer = fast(wordpiece(), "")
    setattr(tokenizer, f"{name}_token", None)
    with pytest.raises(ValueError, match=f"has no {name} token"):
        Masker(tokenizer)


def test_encoding_cuts_and_pads(embedded):
    tokens = embedded.encode([TEXTS[0], "word"], 8, CPU)
    assert tokens.ids.shape == tokens.mask.shape == tokens.special.shape == tokens.word.shape == (2, 8)
    assert tokens.ids.dtype == tokens.mask.dtype == tokens.word.dtype == torch.int64
    assert tokens.mask.sum(1).tolist() == [8, 3]
    unknown = embedded.encode(["word 東"], 8, CPU)
    assert unknown.special.tolist() == [[True, False, True, True]]


# --- masks ---------------------------------------------------------------------------------------------


def made(rows):
    """Tokens of texts whose words have these sizes: a special token, the words, padding."""
    length = 1 + max(sum(sizes) for sizes in rows)
    word = torch.full((len(rows), length), -1)
    for row, sizes in enumerate(rows):
        numbers = [number for number, size in enumerate(sizes) for _ in range(size)]
        word[row, 1 : 1 + len(numbers)] = torch.tensor(numbers, dtype=torch.int64)
    ids = torch.arange(word.numel()).view_as(word) % 7_000 + 5
    return MaskableTokens(ids, (word >= 0).long(), word < 0, word)


def by_hand(sizes, ratio, seed, length):
    """The words that the documented rule takes."""
    wanted = max(1, round(sum(sizes) * ratio))
    allowed = [n for n, size in enumerate(sizes) if size <= max(2 * wanted - 1, min(sizes))]
    keys = draws(torch.tensor([seed]), length, stream=0)[0].tolist()
    order = sorted(allowed, key=lambda n: keys[n])
    sums = np.cumsum([sizes[n] for n in order])
    return set(order[: int(np.argmin(np.abs(sums - wanted))) + 1])


ROWS = st.lists(st.lists(st.integers(1, 6), max_size=40), min_size=1, max_size=5)


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, ratio=st.floats(0.02, 0.98), seed=st.integers(-(2**62), 2**62))
def test_the_rate_is_as_near_as_whole_words_allow(embedded, rows, ratio, seed):
    tokens = made(rows)
    seeds = torch.arange(len(rows)) + seed
    masked = embedded.mask(tokens, ratio, seeds)
    assert masked.dtype == torch.bool
    assert masked.shape == tokens.ids.shape
    assert not (masked & tokens.special).any()
    for row, sizes in enumerate(rows):
        taken = set(tokens.word[row][masked[row]].tolist())
        left = set(tokens.word[row][~masked[row] & ~tokens.special[row]].tolist())
        assert not taken & left, "a word is split"
        if sizes:
            assert taken == by_hand(sizes, ratio, seed + row, tokens.ids.shape[1])
            count, wanted = int(masked[row].sum()), max(1, round(sum(sizes) * ratio))
            longest = max((s for s in sizes if s <= 2 * wanted - 1), default=min(sizes))
            all_taken = all(s > 2 * wanted - 1 for n, s in enumerate(sizes) if n in left)
            assert count >= 1
            assert abs(count - wanted) <= longest / 2 or all_taken


def test_single_tokens_are_masked_at_the_exact_rate(embedded):
    tokens = made([[1] * 100, [1] * 60])
    for ratio in (0.15, 0.3, 0.9):
        assert embedded.mask(tokens, ratio, torch.tensor([1, 2])).sum(1).tolist() == [100 * ratio, 60 * ratio]


def test_every_word_is_masked_equally_often(embedded):
    times, sizes = 4_000, [1, 2, 3, 2, 1, 3, 2, 2, 1, 3]
    tokens = made([sizes] * times)
    masked = embedded.mask(tokens, 0.3, text_seeds(5, 0, times))
    firsts = [1 + sum(sizes[:n]) for n in range(len(sizes))]
    rates = masked[:, firsts].double().mean(0)
    for size in (1, 2, 3):
        alike = torch.tensor([rate for rate, s in zip(rates.tolist(), sizes, strict=True) if s == size])
        assert (alike - alike.mean()).abs().max() < 4 * math.sqrt(0.3 * 0.7 / times)
    assert abs(masked.sum() / (~tokens.special).sum() - 0.3) < 0.02  # of 6 tokens, a third of one


def test_a_text_is_masked_alike_in_any_company(masker):
    whole = masker.encode(TEXTS, 64, CPU)
    seeds = text_seeds(3, 17, len(TEXTS))
    masked = masker.mask(whole, 0.4, seeds)
    corrupted = masker.corrupt(whole, masked, seeds)
    for start in range(0, len(TEXTS), 2):
        part = masker.encode(TEXTS[start : start + 2], 64, CPU)
        length = part.ids.shape[1]
        mine = masker.mask(part, 0.4, seeds[start : start + 2])
        assert torch.equal(mine, masked[start : start + 2, :length])
        assert not masked[start : start + 2, length:].any()
        assert torch.equal(masker.corrupt(part, mine, seeds[start : start + 2]), corrupted[start : start + 2, :length])


def test_masks_differ_between_steps_and_seeds(embedded):
    tokens = embedded.encode([TEXTS[0]] * 2, 64, CPU)
    masks = [embedded.mask(tokens, 0.3, text_seeds(seed, step, 2)) for seed, step in ((1, 0), (1, 1), (2, 0))]
    rows = [tuple(row.tolist()) for mask in masks for row in mask]
    assert len(set(rows)) == len(rows)
    assert torch.equal(masks[0], embedded.mask(tokens, 0.3, text_seeds(1, 0, 2)))


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_ratios_outside_are_refused(embedded, ratio):
    with pytest.raises(ValueError, match="accepted is a number between 0 and 1"):
        embedded.mask(made([[1, 2]]), ratio, torch.tensor([1]))


def test_corruption_is_that_of_bert(embedded):
    tokens = made([[1] * 500] * 40)
    seeds = text_seeds(9, 2, 40)
    masked = embedded.mask(tokens, 0.5, seeds)
    ids = embedded.corrupt(tokens, masked, seeds)
    assert torch.equal(ids[~masked], tokens.ids[~masked])
    count = int(masked.sum())
    as_mask = ids[masked] == embedded.mask_id
    as_before = ids[masked] == tokens.ids[masked]
    other = ids[masked][~as_mask & ~as_before]
    for found, share in ((as_mask, 0.8), (as_before, 0.1)):
        assert abs(found.double().mean() - share) < 4 * math.sqrt(share * (1 - share) / count)
    assert not np.isin(other, embedded.tokenizer.all_special_ids).any()
    assert 0 < other.min() < 100
    assert other.max() > len(embedded.tokenizer) - 100
    assert len(other.unique()) > 0.7 * len(other)


# --- random numbers ------------------------------------------------------------------------------------


def splitmix(state):
    """The published generator's output function in unbounded integers."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


@given(seed=st.integers(-(2**63), 2**63 - 1), stream=st.integers(0, 9))
def test_draws_are_those_of_splitmix64(seed, stream):
    state = splitmix((splitmix(seed % 2**64) + stream) % 2**64)
    expected = [splitmix((state + n * 0x9E3779B97F4A7C15) % 2**64) % 2**63 for n in (1, 2, 3)]
    assert draws(torch.tensor([seed]), 3, stream).tolist() == [expected]


def test_draws_of_texts_and_streams_are_unrelated():
    seeds = text_seeds(0, 0, 200)
    assert len(set(seeds.tolist()) | set(text_seeds(0, 1, 200).tolist()) | set(text_seeds(1, 0, 200).tolist())) == 600
    values = torch.stack([draws(seeds, 50, stream).double() for stream in (0, FREE_STREAM)]) / 2**63
    assert abs(values.mean() - 0.5) < 0.01
    assert abs(values.var() - 1 / 12) < 0.002
    assert abs(torch.corrcoef(values.flatten(1))[0, 1]) < 0.04
    neighbours = torch.stack([values[0, :-1].flatten(), values[0, 1:].flatten()])
    assert abs(torch.corrcoef(neighbours)[0, 1]) < 0.04


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_masks_as_the_cpu_does(embedded):
    cuda = torch.device("cuda")
    seeds = text_seeds(4, 5, len(TEXTS))
    there = embedded.encode(TEXTS, 64, cuda)
    here = embedded.encode(TEXTS, 64, CPU)
    for ratio in (0.15, 0.5, 0.9):
        masked = embedded.mask(here, ratio, seeds)
        assert torch.equal(embedded.mask(there, ratio, seeds.to(cuda)).cpu(), masked)
        corrupted = embedded.corrupt(there, masked.to(cuda), seeds.to(cuda)).cpu()
        assert torch.equal(corrupted, embedded.corrupt(here, masked, seeds))


# --- entropy -------------------------------------------------------------------------------------------


def test_unigram_entropy(embedded):
    texts = ["return list", "value error", *(["return value"] * 2)]
    counts = Counter(" ".join(texts).split()).values()
    expected = -sum(n / 8 * math.log(n / 8) for n in counts)
    held = HeldTexts("four", "", texts)
    assert unigram_entropy(held, embedded, 16) == pytest.approx(expected, abs=1e-12)
    assert unigram_entropy(HeldTexts("one", "", ["return return"]), embedded, 16) == 0
    with pytest.raises(ValueError, match="none: 1 texts have no token"):
        unigram_entropy(HeldTexts("none", "", ["東"]), embedded, 16)
