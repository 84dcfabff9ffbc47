"""Long texts are cut before they are tokenized, and give the same tokens."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from trainables import encoders
from trainables.data import cut as cutting
from trainables.data import masking
from trainables.data.cut import cut

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PARTS = [
    "word", "  ", " ", "\n\n", "naïve", "e\u0301", "[MASK]", "[MA", "12345678", "1", "don't", "漢字", "かな。", "हिन्दी",
    "\u200d", "a_b.c", "...", "x" * 120, "\t", "İ", "ﬁ", "🙂", " \u3000", "Zürich", "[CLS] ", "－", "\u0301", "ΣΑΣ",
    "か", "+/", "....", "aGVs+bG8", "=\u0338",
]  # fmt: skip
CORPUS = ["".join(PARTS), "the quick brown fox don't stop 1234 the word words", "漢字" * 32, "か" * 64] * 20
"""Runs of one character or two give tokens that are long, and that a cut in the run takes apart."""


def _trained(tokenizer: Tokenizer, trainer) -> PreTrainedTokenizerFast:
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip


def wordpiece():
    return AutoTokenizer.from_pretrained(encoders.EMBEDDED)


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _trained(tokenizer, trainers.WordPieceTrainer(vocab_size=200, special_tokens=SPECIAL))


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(tokenizer, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet))


def digits_from_the_right():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d{1,3}(?=(?:\d{3})*\b)"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(tokenizer, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet))


def sentencepiece():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return _trained(tokenizer, trainers.UnigramTrainer(vocab_size=150, special_tokens=SPECIAL, unk_token="[UNK]"))


def without_pre_tokens():
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    return _trained(tokenizer, trainers.BpeTrainer(vocab_size=150, special_tokens=SPECIAL))


KINDS = [wordpiece, bert, byte_level, digits_from_the_right, sentencepiece, without_pre_tokens]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def tokenizer(request):
    return request.param()


def rows(tokenizer, texts, length):
    return tokenizer(texts, truncation=True, max_length=length, padding=True)


texts = st.lists(st.tuples(st.sampled_from(PARTS), st.integers(1, 40)), min_size=1, max_size=40).map(
    lambda parts: "".join(part * times for part, times in parts)
)


@given(text=texts, length=st.integers(3, 24))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_cut_changes_no_token(tokenizer, text, length):
    with pytest.MonkeyPatch.context() as patch:
        # Cuts as early as its proof allows, so that short texts try it.
        patch.setattr(cutting, "_CHARACTERS_PER_TOKEN", 1)
        patch.setattr(cutting, "_GROWTH", 2)
        patch.setattr(cutting, "_WHOLE", 1)
        (short,) = cut(tokenizer, [text], length)
    assert text.startswith(short)
    whole, found = rows(tokenizer, [text], length), rows(tokenizer, [short], length)
    assert found["input_ids"] == whole["input_ids"]
    assert found.encodings[0].offsets == whole.encodings[0].offsets
    assert found.encodings[0].word_ids == whole.encodings[0].word_ids


LONG = {
    "words": "the quick brown fox don't stop " * 6_000,
    "one word": "x" * 100_000,
    "digits": "7" * 30_000,
    "Han": "漢字かな。" * 20_000,
    "white space": " " * 100_000 + "at last a word",
    "punctuation": "." * 50_000,
    "base64": "aGVsbG8+d29ybGQ/" * 5_000,
    "marks": "e" + "\u0301" * 50_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_texts_of_every_kind(tokenizer, text):
    (short,) = cut(tokenizer, [text], 24)
    assert rows(tokenizer, [short], 24)["input_ids"] == rows(tokenizer, [text], 24)["input_ids"]


def test_short_texts_and_tokenizers_that_truncate_on_the_left_are_left_alone():
    found = wordpiece()
    assert cut(found, ["a short one", ""], 24) == ["a short one", ""]
    for kind in ("words", "Han", "base64"):
        assert len(cut(found, [LONG[kind]], 24)[0]) < 1_000
    found.truncation_side = "left"
    assert cut(found, [LONG["words"]], 24) == [LONG["words"]]


def test_every_way_to_the_tokenizer_cuts_first(monkeypatch):
    found = wordpiece()
    line = LONG["words"] * 28
    assert len(line) > 5_000_000
    given = []

    def recorded(tokenizer, texts, length):
        given.append(max(map(len, cut(tokenizer, texts, length))))
        return cut(tokenizer, texts, length)

    cpu = torch.device("cpu")
    for module, encode in ((encoders, partial(encoders.tokenize, found)), (masking, masking.Masker(found).encode)):
        monkeypatch.setattr(module, "cut", recorded)
        assert encode([line, "short"], 24, cpu).ids.shape == (2, 24)
    assert len(given) == 2
    assert max(given) < 1_000
