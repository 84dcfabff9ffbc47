"""The stand-ins of the published sources are opened by the names that the `paper` profiles and the suites have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import paper_sources

ROOT = Path(__file__).resolve().parents[2]
NAME = "Alibaba-NLP/gte-en-mlm-base"
READ = """
import json
import sys
from pathlib import Path

from search_spaces import retromae_mask_search, splade_k_search
from trainables.data.corpora import open_corpus
from trainables.data.pairs import pair_sets
from trainables.data.config import PairData
from trainables.data.sources import training_set
from trainables.data.text import text_set
from trainables.encoders import load_masked_lm
from study.suites.suites import resolve

folder, files = Path(sys.argv[1]), sys.argv[2]
model, _ = load_masked_lm("Alibaba-NLP/gte-en-mlm-base")
pairs = pair_sets(PairData(**{split: f"datasets:json:{files}/{file}-v1.3.json" for split, file in
                              (("train", "train"), ("validation", "valid"), ("test", "test"))}))
beir = resolve("beir18", licensed=folder / "licensed").datasets
# One of each kind: every suite of `benchmarks.paper_profiles` is opened whole there.
kinds = [beir[0], beir[12], beir[13], beir[-1]]
kinds += [resolve(name).datasets[0] for name in ("nanobeir", "msmarco-dev", "trec-dl-2019")]
print(json.dumps({
    "model": model.config.model_type,
    "triples": len(training_set(splade_k_search.STUDY["paper"].config.train).examples),
    "texts": text_set(retromae_mask_search.STUDY["paper"].config.pretraining.text).texts(0, 2, seed=0),
    "pairs": {split: len(part.pairs) for split, part in pairs.items()},
    "sizes": {one.name: open_corpus(one.source, folder / "kept")[0].size for one in kinds},
}))
"""


@pytest.mark.timeout(300)
def test_the_published_names_open(tmp_path: Path) -> None:
    paper_sources.write(tmp_path, {NAME: paper_sources.MODELS[NAME]})
    with paper_sources.serve(tmp_path) as address:
        environment = os.environ | paper_sources.environment(tmp_path, address)
        code = [sys.executable, "-c", READ, str(tmp_path), paper_sources.files(address)]
        done = subprocess.run(code, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["model"] == "gte"
    assert found["triples"] == 240
    assert found["texts"][1] == list(paper_sources.passages(240, seed=0).values())[2]
    assert found["pairs"] == {"train": 240, "validation": 240, "test": 240}
    assert found["sizes"] == {
        "arguana": 40, "webis-touche2020": 40, "cqadupstack-android": 40, "trec-news": 40, "msmarco-dev": 240,
        "trec-dl-2019": 240,
    }  # fmt: skip
