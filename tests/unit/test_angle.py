"""Settings, evaluation, export and collapse rules of the Matryoshka AnglE recipe."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from collapse_series import stopped

from trainables import loop, overrides
from trainables.angle import recipe
from trainables.angle.config import CollapseLimits, Config
from trainables.angle.rules import rules
from trainables.config import Optimiser
from trainables.context import Context
from trainables.data.types import GradedPair, PairSet
from trainables.evaluation import sts

WORDS = ["sort", "list", "open", "file", "read", "line", "parse", "json", "send", "make"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dims": [8, 15]}, r"dims=\[8, 15\]: 15 is odd"),
        ({"dims": [16, 8]}, r"dims=\[16, 8\]: prefixes must ascend, each once: \[8, 16\]"),
        ({"dims": [8, 8]}, r"prefixes must ascend, each once: \[8\]"),
        ({"dims": []}, r"dims=\[\]"),
        ({"dims": [0, 8]}, r"dims.0=0: input should be greater than or equal to 2"),
        ({"dim_weights": [1, 2]}, r"dim_weights=\[1.0, 2.0\]: 5 numbers are needed"),
        ({"dim_weights": [0, 0, 0, 0, 0]}, r"at least one must be above 0"),
        ({"dim_weights": "steep"}, r"dim_weights.*'equal', 'short' or 'long'"),
        ({"angle_weight": 0, "in_batch_weight": 0}, r"are all 0: nothing is left to learn from"),
        (
            {"positive_label": 6, "data.lowest": 0, "data.highest": 5},
            r"positive_label=6 is outside the range of the labels, 0 to 5",
        ),
        ({"split": "halves"}, r"split='halves': input should be 'chunked' or 'interleaved'"),
    ],
)
def test_settings_that_cannot_be_honoured(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        overrides.apply(Config(), settings)


def test_weights_of_the_prefixes() -> None:
    assert Config().weights == (1.0,) * 5
    assert Config(dims=(8, 32), dim_weights="short").weights == (2.0, 1.0)
    assert Config(dims=(8, 32), dim_weights="long").weights == (0.5, 1.0)
    assert Config(dims=(8, 32), dim_weights=(3, 0)).weights == (3.0, 0.0)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    """30 pairs of word pairs, graded by how many words they share."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    texts = [(f"{a} {b}", f"{a} {c}" if i % 3 else f"{c} {c}") for i, (a, b, c) in enumerate(_triples())]
    rows = [
        {"sentence1": one, "sentence2": two, "label": len(set(one.split()) & set(two.split()))} for one, two in texts
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def _triples():
    return [(WORDS[i % 10], WORDS[(i * 3 + 1) % 10], WORDS[(i * 7 + 2) % 10]) for i in range(30)]


def build(folder: Path, pairs: str, **settings):
    data = {f"data.{role}": pairs for role in ("train", "validation", "test")}
    config = overrides.apply(Config(batch_size=8, steps=4), data | settings)
    loop.seed_streams(0)
    return recipe.build(config, Context(seed=0, folder=folder, device=torch.device("cpu")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dims": [8, 256]}, r"dims=\[8, 256\]: the embeddings of backbone 'embedded' have 128 coordinates"),
        ({"length": 513}, r"length is 513, but backbone 'embedded' takes at most 512 tokens"),
    ],
)
def test_what_the_backbone_cannot_do(settings, message, pairs, tmp_path) -> None:
    with pytest.raises(ValueError, match=message):
        build(tmp_path, pairs, **settings)


def test_loss_sums_terms_and_prefixes_with_their_weights(pairs, tmp_path) -> None:
    from trainables.angle import losses

    weights = [1.0, 0.0, 0.5, 2.0, 1.0]
    built = build(tmp_path, pairs, **{
        "dim_weights": weights, "angle_weight": 0.5, "cosine_weight": 2.0, "in_batch_weight": 0.25, "positive_label": 1,
        "split": "interleaved",
    })  # fmt: skip
    batch = built.batch(0)
    x, y = built.model(batch.first), built.model(batch.second)
    config = built.config
    angle = losses.cosent(losses.angle(x, y, config.dims, "interleaved"), batch.labels, config.scale)
    cosine = losses.cosent(losses.cosine(x, y, config.dims), batch.labels, config.scale)
    alike = losses.in_batch(x, y, batch.labels >= 1, batch.excluded, config.dims, config.in_batch_scale)
    expected = ((0.5 * angle + 2 * cosine + 0.25 * alike) * torch.tensor(weights)).sum()
    total, signals = built.loss(batch, 0)
    torch.testing.assert_close(total, expected)
    assert {"angle", "cosine", "in_batch", "ranking", "comparisons", "spread"} == signals.keys()


def test_a_batch_without_alike_pairs_has_no_in_batch_signal_and_a_gradient_of_zero(pairs, tmp_path) -> None:
    built = build(tmp_path, pairs, angle_weight=0)
    built.alike = 6.0
    total, signals = built.loss(built.batch(0), 0)
    total.backward()
    assert total == 0
    assert "in_batch" not in signals
    assert all(not p.grad.any() for p in built.model.parameters() if p.grad is not None)


def test_second_texts_that_come_twice_are_no_negatives(pairs, tmp_path) -> None:
    built = build(tmp_path, pairs, batch_size=30)
    batch = built.batch(0)
    order = [built.data.pairs[i].second for i in recipe.indices(0, 30, 30, 0)]
    expected = [[i != j and order[i] == order[j] for j in range(30)] for i in range(30)]
    assert batch.excluded.tolist() == expected
    assert any(map(any, expected))


def test_pooling_ignores_padding(pairs, tmp_path) -> None:
    for pooling in ("mean", "cls"):
        built = build(tmp_path, pairs, pooling=pooling)
        built.model.eval()
        alone = built.model(built.encoder.tokens(["open file"]))
        padded = built.model(built.encoder.tokens(["open file", "read a line of a long file and parse it as json"]))[:1]
        torch.testing.assert_close(alone, padded, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sentence_transformers_opens_the_export_and_gives_the_same_vectors(pooling, pairs, tmp_path) -> None:
    st = pytest.importorskip("sentence_transformers")
    built = build(tmp_path, pairs, pooling=pooling, prefix="text: ", length=8)
    built.model.eval()
    (tmp_path / "model").mkdir()
    built.export(tmp_path / "model")
    texts = ["open a file", "parse json " * 10]
    with torch.inference_mode():
        own = built.encoder.encode(texts, "text: ").numpy()
    for dim in (None, 32):
        theirs = st.SentenceTransformer(str(tmp_path / "model"), truncate_dim=dim, device="cpu").encode(texts)
        np.testing.assert_allclose(theirs, own[:, :dim], atol=1e-5)


def test_retrieval_measures_every_prefix(pairs, tmp_path) -> None:
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    for name, kind in (("corpus", "d"), ("queries", "q")):
        (beir / f"{name}.jsonl").write_text(
            "".join(json.dumps({"_id": f"{kind}{i}", "title": "", "text": text}) + "\n" for i, text in enumerate(WORDS))
        )
    judged = "".join(f"q{i}\td{i}\t1\n" for i in range(len(WORDS)))
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    built = build(tmp_path, pairs, **{"retrieval.source": str(beir), "dims": [8, 64]})
    built.model.eval()
    found = built.evaluate(("validation", "test"))
    for part in found.values():
        assert part.values["ndcg_at_10_64"] == 1.0  # a query is its document
        assert part.values["ndcg_at_10"] == (part.values["ndcg_at_10_8"] + part.values["ndcg_at_10_64"]) / 2
        assert {"spearman_8", "pearson_64", "spearman"} <= part.values.keys()
        assert {"label", "cosine_8", "ndcg_at_10_8"} <= part.per_item.keys()
    assert "retrieval.test.identity" in built.description
    # A full evaluation opens the export, and takes the longest prefix.
    (tmp_path / "model").mkdir()
    built.export(tmp_path / "model")
    encoder = recipe.Encoder.open(tmp_path / "model", built.config, torch.device("cpu"))
    again = built.retrieval.evaluate(("test",), encoder.queries, encoder.documents)["test"]
    assert again.per_item["ndcg_at_10"] == found["test"].per_item["ndcg_at_10_64"]


def test_correlations_are_scipys_with_ties() -> None:
    generator = torch.Generator().manual_seed(0)
    texts = [f"t{i}" for i in range(80)]
    table = {text: torch.randn(6, generator=generator) for text in texts}
    part = PairSet("p", "", [GradedPair(str(i), texts[i], texts[i + 40], float(i % 5)) for i in range(40)])
    measured = sts.evaluate({"test": part}, lambda asked: torch.stack([table[t] for t in asked]), (2, 6))["test"]
    for dim in (2, 6):
        first, second = (torch.stack([table[t] for t in side])[:, :dim] for side in (texts[:40], texts[40:]))
        cosines = torch.nn.functional.cosine_similarity(first.double(), second.double()).numpy()
        label = [i % 5 for i in range(40)]
        assert measured.values[f"spearman_{dim}"] == pytest.approx(scipy.stats.spearmanr(cosines, label)[0], abs=1e-9)
        assert measured.values[f"pearson_{dim}"] == pytest.approx(scipy.stats.pearsonr(cosines, label)[0], abs=1e-9)
        assert list(measured.per_item[f"cosine_{dim}"].values()) == pytest.approx(cosines.tolist())
    assert measured.values["spearman"] == (measured.values["spearman_2"] + measured.values["spearman_6"]) / 2


def test_a_model_without_numbers_has_no_correlation() -> None:
    part = PairSet("p", "", [GradedPair(str(i), f"a{i}", f"b{i}", float(i)) for i in range(3)])
    broken = sts.evaluate({"test": part}, lambda texts: torch.full((len(texts), 2), math.nan), (2,))["test"]
    assert math.isnan(broken.values["spearman_2"])
    same = sts.evaluate({"test": part}, lambda texts: torch.ones(len(texts), 2), (2,))["test"]
    assert same.values["spearman_2"] == 0.0


CHANCE = math.log1p(400)


def verdict(steps: int, every: int = 1, evaluations=None, limits=None, **signals):
    """Step and reason of the end of a run with these signals; None for one that is left alone."""
    healthy = {
        "ranking": lambda t: CHANCE * (0.6 + 0.5 * math.exp(-t / 30) + 0.03 * math.sin(t)),
        "comparisons": lambda t: 400.0,
        "spread": lambda t: 0.3,
        "in_batch": lambda t: math.log(32),
    }
    courses = healthy | signals
    applied = rules(Config(steps=steps, collapse_limits=CollapseLimits(**(limits or {}))))
    return stopped(applied, courses | {"loss": courses["ranking"]}, steps, every=every, evaluations=evaluations)


@pytest.mark.parametrize(
    ("signals", "step", "reason"),
    [
        ({}, None, None),
        ({"spread": lambda t: 0.3 * 0.5**t}, 22, "one direction"),
        # At chance, where a plateau lies that is longer than this run; and above it, where none does.
        ({"ranking": lambda t: CHANCE * (1 + 3 * math.exp(-t / 4))}, None, None),
        ({"ranking": lambda t: CHANCE * (1.1 + 3 * math.exp(-t / 4))}, 50, "does not fall"),
        ({"ranking": lambda t: CHANCE * (1.4 + 0.05 * math.sin(t))}, 50, "does not fall"),
        ({"ranking": lambda t: CHANCE * (3 - t / 50)}, None, None),
        # The course of a real run: at chance for a third of its steps, then below.
        ({"ranking": lambda t: CHANCE * (1.5 - t / 40 if t < 20 else 1.0 if t < 45 else 0.98)}, None, None),
        ({"ranking": lambda t: CHANCE, "in_batch": lambda t: math.log(32) * (0.995 - t / 300)}, None, None),
        ({"ranking": lambda t: math.nan if t == 3 else CHANCE}, 4, "loss is nan"),
    ],
)
def test_collapse_rules(signals, step, reason) -> None:
    found = verdict(100, **signals)
    if reason is None:
        assert found is None
    else:
        assert reason in found[1]
        assert found[0] == step


@pytest.mark.parametrize(("steps", "every"), [(100, 1), (1_000, 1), (150_000, 50)])
def test_collapses_are_stopped_whatever_the_length(steps, every) -> None:
    draw = random.Random(steps)
    course = {"ranking": lambda t: CHANCE * (1.0 + 0.005 * draw.gauss(0, 1) + 2 * math.exp(-25 * t / steps))}
    step, reason = verdict(steps, every, limits={"plateau": 40}, **course)
    assert "does not fall" in reason
    assert 0.5 * steps <= step <= 0.61 * steps
    step, reason = verdict(steps, every, spread=lambda t: 0.3 if t < 0.3 * steps else 1e-6)
    assert "one direction" in reason
    assert step <= 0.42 * steps
    assert verdict(steps, every, ranking=lambda t: CHANCE * (3 - 2.5 * t / steps)) is None


def test_a_plateau_is_as_long_as_it_is_however_short_the_run() -> None:
    flat = {"ranking": lambda t: CHANCE}
    assert verdict(180, **flat) is None
    assert verdict(400, **flat)[0] == 292, "the block after 250 steps, 40 of warm-up not counted"
    assert verdict(1_000, **flat)[0] == 500


def test_an_in_batch_term_without_pairs_to_work_on_excuses_nothing() -> None:
    assert verdict(1_000, ranking=lambda t: CHANCE, in_batch=lambda t: None)[0] == 500


def test_an_evaluation_that_improves_is_no_collapse() -> None:
    better = {0: {"spearman": 0.64}, 400: {"spearman": 0.63}, 450: {"spearman": 0.65}, 500: {"spearman": 0.65}}
    assert verdict(1_000, ranking=lambda t: CHANCE, evaluations=better)[0] == 650


def test_a_recorded_run_on_the_sts_benchmark_is_left_alone() -> None:
    """Two layers, rate 3e-4, scale 20, 180 steps: at chance from step 40 to the end, and Spearman goes .646 -> .660."""
    recorded = json.loads((Path(__file__).with_name("angle_plateau.json")).read_text())
    columns = {name: recorded[name] for name in ("ranking", "comparisons", "spread")}
    courses = {name: lambda t, values=values: values[int(t)] for name, values in columns.items()}
    spearman = {int(step): {"spearman": value} for step, value in recorded["spearman"].items()}
    applied = rules(Config(steps=180, scale=20, in_batch_weight=0, optimiser=Optimiser(lr=3e-4)))
    assert stopped(applied, courses, 180) is None
    hasty = CollapseLimits(plateau=50)
    applied = rules(Config(steps=180, scale=20, in_batch_weight=0, collapse_limits=hasty))
    without, with_them = (stopped(applied, courses, 180, evaluations=asked)[0] for asked in ({}, spearman))
    assert without == 90
    assert with_them == 111, "two windows after step 75, whose evaluation stays the best until 120"
