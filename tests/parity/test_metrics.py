"""Metrics against ranx and trec_eval (through ir_measures), per query, to 1e-9."""

import json
import os
import random
import subprocess
import sys

import pytest

from study.stats.significance import over_items
from trainables.evaluation.metrics import METRICS, evaluate

MEASURES = (*METRICS, "ndcg_at_3", "mrr_at_100", "recall_at_10", "ndcg_at_1000")
QUERIES = 40


def case(seed):
    """(run, qrels): graded judgements with zeros and negatives, unjudged, missing and repeated scores."""
    rng = random.Random(seed)
    documents = [f"d{i:03}" for i in range(150)]
    run, qrels = {}, {}
    for number in range(QUERIES):
        query = f"q{number}"
        judged = rng.sample(documents, rng.randint(1, 60)) + [f"missing{i}" for i in range(rng.randint(0, 3))]
        qrels[query] = {document: rng.choice([0, 0, 1, 1, 2, 3]) for document in judged}
        qrels[query][rng.choice(judged)] = rng.randint(1, 3)
        found = rng.sample(documents, rng.randint(1, 130))
        run[query] = sorted(((document, rng.choice([rng.random(), 0.5])) for document in found), key=lambda x: -x[1])
    return run, qrels


def by_rank(run):
    """The same order with scores that all differ: the references break ties by rules of their own."""
    return {query: {document: -float(rank) for rank, (document, _) in enumerate(row)} for query, row in run.items()}


@pytest.mark.parametrize("seed", range(5))
def test_trec_eval(seed):
    ir_measures = pytest.importorskip("ir_measures")
    run, qrels = case(seed)
    qrels["q0"]["d000"] = -1
    mine = evaluate(run, qrels, MEASURES)
    names = {"ndcg": "nDCG", "mrr": "RR", "recall": "R"}
    theirs = {ir_measures.parse_measure(f"{names[m.split('_')[0]]}@{m.split('_')[-1]}"): m for m in MEASURES}
    results = list(ir_measures.iter_calc(list(theirs), qrels, by_rank(run)))
    assert len(results) == QUERIES * len(MEASURES)
    for result in results:
        assert mine.per_item[theirs[result.measure]][result.query_id] == pytest.approx(result.value, abs=1e-9)
    for measure, value in ir_measures.calc_aggregate(list(theirs), qrels, by_rank(run)).items():
        assert mine.values[theirs[measure]] == pytest.approx(value, abs=1e-9)


RANX = """
import json, sys
import ranx
from ranx.statistical_tests import paired_student_t_test
run, qrels, names = json.load(sys.stdin)
reference = ranx.Run(run)
means = ranx.evaluate(ranx.Qrels(qrels), reference, names)
one, other = (list(reference.scores[name].values()) for name in names[:2])
p = paired_student_t_test(one, other)[0]
print(json.dumps([{name: float(means[name]) for name in names}, reference.scores, p], default=float))
"""


def test_ranx():
    """In a process that does not compile: compiling takes ranx more than a minute on a fresh machine."""
    run, qrels = case(seed=11)
    mine = evaluate(run, qrels, MEASURES)
    theirs = {measure: measure.replace("_at_", "@") for measure in MEASURES}
    answer = subprocess.run(
        [sys.executable, "-c", RANX],
        input=json.dumps([by_rank(run), qrels, list(theirs.values())]),
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    means, scores, p = json.loads(answer.stdout)
    for measure, name in theirs.items():
        assert mine.values[measure] == pytest.approx(means[name], abs=1e-9)
        assert mine.per_item[measure] == pytest.approx(scores[name], abs=1e-9)
    one, other = ([mine.per_item[measure]] for measure in MEASURES[:2])
    difference = over_items(one, other)
    assert difference is not None
    assert difference.p == pytest.approx(p, rel=1e-6)


def test_a_query_without_results_counts_as_zero():
    found = evaluate({"a": [("d", 1.0)]}, {"a": {"d": 1}, "b": {"d": 1}})
    assert found.per_item["ndcg_at_10"] == {"a": 1.0, "b": 0.0}
    assert set(found.values.values()) == {0.5}


def test_by_hand():
    run = {"q": [("x", 9.0), ("two", 8.0), ("one", 7.0)]}
    found = evaluate(run, {"q": {"one": 1, "two": 2, "gone": 1, "no": 0}}, ("ndcg_at_10", "mrr_at_1", "recall_at_2"))
    ideal = 2 + 1 / 1.584962500721156 + 1 / 2
    assert found.values["ndcg_at_10"] == pytest.approx((2 / 1.584962500721156 + 1 / 2) / ideal, abs=1e-12)
    assert found.values["mrr_at_1"] == 0
    assert found.values["recall_at_2"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("metric", ["ndcg", "ndcg_at_0", "map_at_10", "ndcg_at_x"])
def test_unknown_metrics_name_those_that_exist(metric):
    with pytest.raises(ValueError, match="accepted are ndcg_at_K, mrr_at_K, recall_at_K"):
        evaluate({}, {"q": {"d": 1}}, (metric,))
