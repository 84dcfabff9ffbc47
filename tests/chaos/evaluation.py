"""A full evaluation of many passages that is killed in the middle and run again.

    python tests/chaos/evaluation.py --passages 500000 --workers 2

Passages, queries and a small encoder of random weights are generated, the same ones each time. Everything that
the evaluation started is killed when half of the shards are there; the same command is run again, and loses a
worker. Then no shard may have been made twice, results must be those of brute force on a sample of the queries,
some shards must be the same to the last bit when searched in this process alone, and memory must not have grown
with what was done.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from launches import MARK, ROOT, marked, say, temporary_folder, until

STUDY = """
from study.spec import Budget, Objective, Study
from trainables.angle.config import Config

def space(trial):
    trial.suggest_categorical("split", ["chunked"])

STUDY = {"embedded": Study(question="?", trainer="angle", parameter="split", space=space,
    config=Config(dims=(32,), length=24), objectives=(Objective(name="spearman"),), budget=Budget(trials=1))}
"""
SEED = 7
SAMPLE_EVERY_S = 1.0
LOOK_EVERY_S = 0.05
TOLERANCE = 2e-6
"""Largest difference allowed between two cosines in float32: brute force encodes in another order, which pads
differently."""
GROWTH = 1.15
"""Memory in the second half over that between 10% and 50% at most; before that, processes start."""


def generate(folder: Path, passages: int, queries: int) -> None:
    """A folder in BEIR layout of passages of made-up words; a query is a passage without its last word."""
    rng = random.Random(SEED)
    syllables = [c + v for c in "bcdfghjklmnprstvw" for v in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(20_000)]
    (folder / "qrels").mkdir(parents=True)
    asked = set(rng.sample(range(passages), queries))
    with (
        (folder / "corpus.jsonl").open("w") as corpus,
        (folder / "queries.jsonl").open("w") as topics,
        (folder / "qrels" / "test.tsv").open("w") as qrels,
    ):
        for number in range(passages):
            body = rng.choices(words, k=rng.randint(5, 60))
            corpus.write(json.dumps({"_id": f"d{number}", "title": "", "text": " ".join(body)}) + "\n")
            if number in asked:
                topics.write(json.dumps({"_id": f"q{number}", "text": " ".join(body[:-1])}) + "\n")
                qrels.write(f"q{number}\td{number}\t1\n")


def record(storage: Path, parameter: str, trials: Sequence[tuple[dict[str, Any], Any, str]]) -> None:
    """What a study leaves of its trials besides their folders: each has parameters, a config and a state."""
    from study.ledger.optuna_study import flat
    from study.protocol.journal import TrialBegun, encode
    from study.protocol.summary import ObjectiveSummary, StudySummary, Tracking, TrialSummary, WorkerSeconds
    from study.tracking.mlflow_runs import connect

    uri = f"sqlite:///{storage.parent / 'mlflow.db'}"
    client = connect(uri)
    experiment = client.create_experiment("made", artifact_location=str(storage.parent / "mlartifacts"))
    parent, *runs = (client.create_run(experiment).info.run_id for _ in range(len(trials) + 1))

    lines = [
        encode(TrialBegun(trial=number, params=flat(config.model_dump(exclude={"cache"})) | {"seed": 0}, time=0))
        for number, (_, config, _) in enumerate(trials)
    ]
    (storage / "journal.jsonl").write_text("".join(lines))
    summary = StudySummary(
        study="made", id="made-0123456789ab", profile="embedded", question="How long?", status="finished",
        parameter=parameter, best=[0], objectives=[ObjectiveSummary(name="ndcg_at_10", direction="maximize")],
        planned_trials=len(trials), worker_seconds=WorkerSeconds(), updated=datetime.now(UTC),
        trials=[
            TrialSummary(
                number=number, state=state, params=params, steps=30, planned_steps=30, attempts=1, run_id=runs[number]
            )
            for number, (params, _, state) in enumerate(trials)
        ],
        tracking=Tracking(uri=uri, experiment="made", run_id=parent),
    )  # fmt: skip
    (storage / "summary.json").write_text(summary.text())


def finished_study(folder: Path) -> tuple[Path, Path]:
    """(study file, storage) of a study whose one trial has exported an encoder of random weights."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from trainables.angle.config import Config
    from trainables.angle.model import SentenceEncoder, export
    from trainables.encoders import EMBEDDED, Prefixes

    storage = folder / "study"
    model = storage / "trials" / "0000" / "replicate-0" / "model"
    model.mkdir(parents=True)
    torch.manual_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    # Far apart at the start, so that few scores are nearly equal.
    bert = BertModel(BertConfig(vocab_size=len(tokenizer), initializer_range=0.5, **shape)).eval()
    export(SentenceEncoder(bert, "mean"), tokenizer, model, 24, Prefixes("", "", ""), (32,))
    record(storage, "split", [({"split": "chunked"}, Config(dims=(32,), length=24), "complete")])
    study = folder / "made.py"
    study.write_text(STUDY)
    return study, storage


@dataclass
class Evaluation:
    """Launches of the command, and the memory of everything they started."""

    study: Path
    storage: Path
    suite: Path
    workers: int
    shards: int
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    """(share of the shards that are done, bytes of all processes, of the largest), shared pages counted once."""

    def run(self, kill_at: float | None = None, lose_at: float = math.inf) -> float:
        """Seconds that a launch took, to its end or until `kill_at` of all shards were done and it was killed.

        It loses a worker when `lose_at` of them are done.
        """
        mark = uuid.uuid4().hex
        temporary = temporary_folder(self.storage)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_"))}
        environment |= {MARK: mark, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        began = time.monotonic()
        screen = self.storage / "screen"
        with screen.open("a") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "study.evaluate", str(self.study), "--suite", str(self.suite),
                 "--trials", "best", "--storage", str(self.storage), "--workers", str(self.workers)],
                cwd=self.storage, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
            try:
                sampled = 0.0
                while process.poll() is None:
                    if time.monotonic() - sampled > SAMPLE_EVERY_S:
                        self._sample(process.pid)
                        sampled = time.monotonic()
                    if kill_at is not None and self.done() >= kill_at * self.shards:
                        break
                    if self.done() >= lose_at * self.shards:
                        lose_at = math.inf
                        self._kill_worker(process.pid)
                    time.sleep(LOOK_EVERY_S)
            finally:
                if process.poll() is None:
                    for one in marked(mark):
                        one.kill()
                process.wait()
                until(lambda: not marked(mark), "the end of all processes")
        if kill_at is None:
            assert process.returncode == 0, screen.read_text()[-3000:]
        else:
            assert process.returncode == -9, f"it ended before it was killed:\n{screen.read_text()[-3000:]}"
        return time.monotonic() - began

    def _kill_worker(self, pid: int) -> None:
        started = psutil.Process(pid).children(recursive=True)
        workers = [process for process in started if "MapWorker" in " ".join(process.cmdline())]
        assert workers, "no worker to lose"
        workers[0].kill()
        say(f"a worker was killed with {self.done()} shards done")

    def _sample(self, pid: int) -> None:
        try:
            processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
            sizes = [process.memory_full_info().pss for process in processes]
        except psutil.Error:
            return  # one has just ended
        self.samples.append((self.done() / self.shards, sum(sizes), max(sizes)))

    def done(self) -> int:
        return len(list((self.storage / "evaluation" / "cache").glob("*/*/hits-*/[0-9]*.npy")))

    def made(self) -> dict[str, int]:
        """Shard -> when it was put in place."""
        found = (self.storage / "evaluation" / "cache").glob("*/*/shard-*/manifest.json")
        return {path.parent.name: path.stat().st_mtime_ns for path in found}

    def peak(self, start: float, stop: float) -> tuple[float, float]:
        """MiB of all processes and of the largest, while between these shares of the work were done."""
        within = [sizes for share, *sizes in self.samples if start <= share < stop]
        assert within, f"no sample between {start:.0%} and {stop:.0%}"
        return tuple(max(column) / 2**20 for column in zip(*within, strict=True))


def measurement(evaluation: Evaluation, cache: Path) -> Any:
    """What the command has measured."""
    from study.protocol.folder import StudyFolder
    from study.protocol.states import TrialState
    from study.protocol.summary import TrialSummary
    from study.suites.measurements import plan
    from study.suites.suites import resolve

    trials = [TrialSummary(number=0, state=TrialState.COMPLETE, params={}, planned_steps=0)]
    suite = resolve(str(evaluation.suite))
    (planned,) = plan("angle", StudyFolder(evaluation.storage), trials, suite, "float32", cache, say)
    return planned.measurement


def check_brute_force(one: Any, folder: Path, sample: int) -> float:
    """Encode everything anew, in the source's order, and score in float64; returns the largest difference.

    Scores at every rank and of every found document must agree to `TOLERANCE`: then only documents that are
    nearer than that to each other may have changed places.
    """
    import numpy as np
    import torch

    from trainables.angle.config import Config
    from trainables.angle.recipe import Encoder
    from trainables.evaluation import shards
    from trainables.evaluation.search import TopK

    encoder = Encoder.open(one.model, Config(**one.config), torch.device("cpu"))
    best = TopK(len(one.topics.queries), one.depth)
    for shard in range(one.shards):
        best.merge(shards.read_hits(shards.hits_file(folder, one, shard), len(one.topics.queries)))
    scores, positions = best.result()
    rows = random.Random(SEED).sample(range(len(one.topics.queries)), sample)
    texts = list(one.topics.queries.values())
    with torch.inference_mode():
        queries = encoder.queries([texts[row] for row in rows]).double().numpy()
        every = np.empty((sample, one.corpus.size))
        for start in range(0, one.corpus.size, 4096):
            bodies = [text for _, text in one.corpus.documents(start, start + 4096)]
            every[:, start : start + len(bodies)] = queries @ encoder.documents(bodies).double().numpy().T
    largest = 0.0
    for place, row in enumerate(rows):
        expected = np.sort(every[place])[::-1][: one.depth]
        found, at = scores[row].double().numpy(), positions[row].numpy()
        assert len(set(at.tolist())) == one.depth
        largest = max(largest, np.abs(found - expected).max(), np.abs(found - every[place][at]).max())
    assert largest < TOLERANCE, f"differs by {largest:.1e}"
    return largest


def check_bits(one: Any, alone: Any, folder: Path, chosen: list[int]) -> None:
    """These shards, encoded and searched in this process without Ray, have the same scores to the last bit."""
    import torch

    from trainables.angle.config import Config
    from trainables.angle.recipe import Encoder
    from trainables.evaluation import shards
    from trainables.evaluation.shards import ShardSearch

    encoder = Encoder.open(one.model, Config(**one.config), torch.device("cpu"))
    search = ShardSearch(alone, encoder, torch.device("cpu"))
    for shard in chosen:
        search.search(shard)
        files = shards.hits_file(folder, one, shard), shards.hits_file(search.folder, alone, shard)
        assert files[0].read_bytes() == files[1].read_bytes(), f"shard {shard} differs"


def story(folder: Path, passages: int, queries: int, workers: int, sample: int) -> Evaluation:
    """The whole check in an empty folder; raises AssertionError where something is wrong."""
    import torch

    torch.set_num_threads(1)
    began = time.monotonic()
    generate(folder / "passages", passages, queries)
    study, storage = finished_study(folder)
    evaluation = Evaluation(study, storage, folder / "passages", workers, shards=0)
    one = measurement(evaluation, storage / "evaluation" / "cache")
    evaluation.shards = one.shards
    say(f"{passages:,} passages, {queries} queries, {one.shards} shards: {time.monotonic() - began:.0f} s to generate")
    say(f"killed after {evaluation.run(kill_at=0.5):.0f} s with {evaluation.done()} shards done")
    before = evaluation.made()
    say(f"carried on and finished in {evaluation.run(lose_at=0.75):.0f} s")
    after = evaluation.made()
    assert len(after) == one.shards
    twice = [shard for shard, time_ in before.items() if after[shard] != time_]
    assert not twice, f"made twice: {twice}"
    (place,) = (storage / "evaluation" / "cache").glob("passages-*/*")
    began = time.monotonic()
    largest = check_brute_force(one, place, sample)
    say(f"brute force on {sample} queries: scores differ by at most {largest:.1e} ({time.monotonic() - began:.0f} s)")
    alone = measurement(evaluation, folder / "alone")
    check_bits(one, alone, place, [0, one.shards - 1])
    say("searched without Ray: the same to the last bit")
    result = json.loads((storage / "evaluation" / "passages.json").read_text())
    say(f"{result['metric']} {result['trials'][0]['mean'][result['metric']]:.4f}")
    return evaluation


def check_memory(evaluation: Evaluation) -> None:
    """Print the peaks while a part of the work was done, and compare the second half with what was before."""
    bounds = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
    for start, stop in pairwise(bounds):
        total, largest = evaluation.peak(start, stop)
        say(f"memory from {start:.0%} to {stop:.0%}: all processes {total:,.0f} MiB, the largest {largest:,.0f} MiB")
    early, late = evaluation.peak(0.1, 0.5)[0], evaluation.peak(0.5, 1.01)[0]
    assert late < GROWTH * early, f"memory grew from {early:,.0f} to {late:,.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=500_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sample", type=int, default=20, help="queries that brute force answers too")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        evaluation = story(Path(folder), options.passages, options.queries, options.workers, options.sample)
        check_memory(evaluation)
    say(f"all as it should be, after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
