"""Suites: ids that the installed library knows, folders, refusals."""

import pytest

from study.suites.suites import resolve
from trainables.evaluation.suites import SUITES, shares

SIZES = {"beir13": 13, "beir18": 25, "nanobeir": 13, "nanobeir-st": 13, "msmarco-dev": 1, "trec-dl-2019": 1}


def test_every_id_is_in_the_installed_registry_with_all_that_is_needed():
    """Without a download: `has` asks the library's own table."""
    import ir_datasets

    assert {name: len(suite.datasets) for name, suite in SUITES.items()} == SIZES
    for suite in SUITES.values():
        for dataset in suite.datasets:
            found = ir_datasets.load(dataset.source.removeprefix("ir_datasets:"))
            assert all(found.has(entity) for entity in ("docs", "queries", "qrels")), dataset


def test_beir_ids_are_those_with_test_queries_and_known_sizes():
    """Numbers of test queries as Thakur et al. 2021 print them, from the library's metadata."""
    import ir_datasets

    queries = {
        "trec-covid": 50, "nfcorpus": 323, "nq": 3_452, "hotpotqa": 7_405, "fiqa": 648, "arguana": 1_406,
        "webis-touche2020": 49, "quora": 10_000, "dbpedia-entity": 400, "scidocs": 1_000, "fever": 6_666,
        "climate-fever": 1_535, "scifact": 300,
    }  # fmt: skip
    ids = {d.name: d.source.removeprefix("ir_datasets:") for d in SUITES["beir13"].datasets}
    assert {name: ir_datasets.load(id).metadata()["queries"]["count"] for name, id in ids.items()} == queries


def test_conventions():
    assert not any(dataset.own_id for name in ("beir13", "nanobeir") for dataset in SUITES[name].datasets)
    assert SUITES["msmarco-dev"].metrics[0] == "mrr_at_10"
    assert [dataset.relevant for dataset in SUITES["trec-dl-2019"].datasets] == [2]


def test_folders(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.jsonl").touch()
    (tmp_path / "none").mkdir()
    several = resolve(str(tmp_path))
    assert [(d.name, d.source, d.own_id) for d in several.datasets] == [
        ("a", str(tmp_path / "a"), True), ("b", str(tmp_path / "b"), True),
    ]  # fmt: skip
    assert [d.name for d in resolve(str(tmp_path / "a")).datasets] == ["a"]
    with pytest.raises(ValueError, match=r"neither it nor a folder in it has a corpus\.jsonl"):
        resolve(str(tmp_path / "none"))


@pytest.mark.parametrize(("asked", "near"), [("beir", "beir1"), ("nano-beir", "nanobeir"), ("msmarco_dev", "msmarco")])
def test_unknown_suites_name_the_nearest(asked, near):
    with pytest.raises(ValueError, match=f"unknown suite '{asked}'; did you mean '{near}"):
        resolve(asked)


def test_a_mistyped_folder_names_the_nearest(tmp_path, monkeypatch):
    (tmp_path / "data" / "my-collections").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"unknown suite 'data/my-colections'; did you mean '{tmp_path}/data/my-coll"):
        resolve("data/my-colections")


def test_beir18_counts_the_forums_of_cqadupstack_as_one_and_takes_the_licensed_from_a_folder(tmp_path):
    with pytest.raises(ValueError, match=r"--licensed DIR, each in BEIR .*\(bioasq, robust04, signal1m, trec-news\)"):
        resolve("beir18")
    for name in ("bioasq", "robust04", "signal1m", "trec-news"):
        with pytest.raises(ValueError, match=f"no corpus.jsonl in .*{name}"):
            resolve("beir18", licensed=tmp_path)
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.jsonl").touch()
    suite = resolve("beir18", licensed=tmp_path)
    found = shares(suite.datasets)
    assert len({one.part_of or one.name for one in suite.datasets}) == 18
    assert sum(found.values()) == pytest.approx(1)
    assert found["bioasq"] == found["nq"] == 1 / 18
    assert found["cqadupstack-tex"] == 1 / 18 / 12
    assert not any(one.own_id for one in suite.datasets)
    with pytest.raises(ValueError, match="all collections of beir13 are free; beir18 needs it"):
        resolve("beir13", licensed=tmp_path)


def test_folders_have_their_convention_by_options_and_published_suites_by_name(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "corpus.jsonl").touch()
    folder = str(tmp_path / "own")
    dev = resolve(folder, qrels_split="dev", drop_own_id=True)
    assert dev.name == "own-dev-own-id-dropped"
    assert [(one.own_id, one.qrels_split) for one in dev.datasets] == [(False, "dev")]
    assert resolve(folder, qrels_split="test").name == "own"
    for given, option in (({"qrels_split": "dev"}, "--qrels-split"), ({"drop_own_id": True}, "--drop-own-id")):
        with pytest.raises(ValueError, match=f"{option} is for folders; nanobeir-st has a convention of its own"):
            resolve("nanobeir-st", **given)
