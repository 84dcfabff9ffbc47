"""The journal keeps whole lines, once, whatever happens to the process or the disk."""

import json
import math
import os

import pytest

from study.journal import Damaged, Journal, entries, first


def records(*steps, loss=1.0):
    return [{"step": step, "time": 1_000 + step, "metrics": {"loss": loss}} for step in steps]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study" / "journal.jsonl"


def test_append_records_drops_steps_at_or_below_the_high_water_mark(path):
    journal = Journal(path)
    assert [r["step"] for r in journal.append_records(0, 0, records(1, 2, 3))] == [1, 2, 3]
    assert [r["step"] for r in journal.append_records(0, 0, records(2, 3, 4))] == [4]
    assert journal.append_records(0, 0, records(4)) == []
    assert [r["step"] for _, entry in journal.read() for r in entry["records"]] == [1, 2, 3, 4]


def test_high_water_marks_are_per_replicate_and_survive_reopening(path):
    journal = Journal(path)
    assert journal.high_water(0, 0) == -1
    journal.append_records(0, 0, records(0))
    journal.append_records(0, 1, records(7, 5))
    journal.close()
    journal = Journal(path)
    assert [journal.high_water(0, 0), journal.high_water(0, 1), journal.high_water(1, 0)] == [0, 7, -1]


@pytest.mark.parametrize("left", range(1, 40, 6))
def test_half_a_line_is_dropped_and_its_steps_are_taken_again(path, left):
    journal = Journal(path)
    journal.append_records(0, 0, records(1))
    whole = path.stat().st_size
    journal.append_records(0, 0, records(2))
    journal.close()
    os.truncate(path, whole + left)
    journal = Journal(path)
    assert journal.high_water(0, 0) == 1
    journal.append_records(0, 0, records(2, 3))
    assert [r["step"] for _, entry in journal.read() for r in entry["records"]] == [1, 2, 3]


def test_a_reader_does_not_see_a_line_before_its_end(path):
    journal = Journal(path)
    journal.append({"op": "study", "params": {}, "time": 1})
    with path.open("ab") as file:
        file.write(b'{"op": "tri')
    assert [entry["op"] for _, entry in journal.read()] == ["study"]


def test_offsets_continue_where_they_stopped(path):
    journal = Journal(path)
    journal.append(*({"op": "artifact", "path": f"é{n}", "artifact_path": "x", "time": n} for n in range(4)))
    offsets = [offset for offset, _ in journal.read()]
    assert offsets[-1] == path.stat().st_size
    for n, offset in enumerate(offsets):
        assert [entry["time"] for _, entry in journal.read(offset)] == list(range(n + 1, 4))
        assert journal.pending(offset) == 3 - n


def test_non_finite_metrics_are_standard_json_and_come_back(path):
    journal = Journal(path)
    values = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.25}
    journal.append({"op": "values", "trial": None, "replicate": None, "values": values, "step": 0, "time": 1})
    journal.append_records(0, 0, [{"step": 1, "time": 1, "metrics": values}])

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    (_, first), (_, second) = journal.read()
    for metrics in (first["values"], second["records"][0]["metrics"]):
        assert math.isnan(metrics["a"])
        assert [metrics[name] for name in "bcd"] == [math.inf, -math.inf, 0.25]


def test_a_failed_append_leaves_nothing_behind(path, monkeypatch):
    journal = Journal(path)
    journal.append_records(0, 0, records(1))

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("study.journal.os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            journal.append_records(0, 0, records(2))
    assert journal.high_water(0, 0) == 1
    assert [r["step"] for r in journal.append_records(0, 0, records(2))] == [2]
    assert [r["step"] for _, entry in journal.read() for r in entry["records"]] == [1, 2]


OTHERS = [
    ('{"op":"metrics","trial":0,"replicate":0,"records":[{"st', []),
    ('{"op":"trial","trial":4}\n', [4]),
    ('{"op": "trial", "trial": 4}\n', [4]),
    ('{"op":"metrics","records":"not looked at"}\n', []),
]


@pytest.mark.parametrize(("end", "more"), OTHERS)
def test_entries_of_one_kind_are_read_from_a_journal_that_grows(path, end, more):
    assert (list(entries(path, "trial")), first(path)) == ([], {})
    journal = Journal(path)
    journal.append({"op": "study", "id": "a", "params": {}, "time": 1}, {"op": "trial", "trial": 3})
    with path.open("a") as file:
        file.write(end)
    assert [entry["trial"] for entry in entries(path, "trial")] == [3, *more]
    assert first(path)["id"] == "a"


@pytest.mark.parametrize("line", ["[1]", "Dear reader,", '{"op":"met\0\0\0}', '{"op":"trial",', "{}", '","time":1}'])
def test_a_line_that_is_no_entry_is_told_whoever_reads(path, line):
    path.parent.mkdir()
    path.write_text(f"{line}\n")
    for read in (lambda: list(entries(path, "trial")), lambda: first(path)):
        with pytest.raises(Damaged, match="line 1: no entry of a study's journal"):
            read()
