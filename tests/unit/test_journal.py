"""The journal keeps whole lines, once, whatever happens to the process or the disk."""

import json
import math
import os

import pytest

from study.ledger.journal import Journal
from study.protocol.journal import (
    Artifact,
    Damaged,
    Ended,
    InputsRead,
    Metrics,
    Newer,
    ReplicateBegun,
    StudyBegun,
    TrialBegun,
    Values,
    decode,
    encode,
    first,
    read,
)
from study.protocol.journal_reader import JournalReader
from study.protocol.states import ReplicateState, StudyStatus, TrialState


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
    assert [r["step"] for _, entry in journal.read() for r in entry.records] == [1, 2, 3, 4]


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
    assert [r["step"] for _, entry in journal.read() for r in entry.records] == [1, 2, 3]


def test_a_reader_does_not_see_a_line_before_its_end(path):
    journal = Journal(path)
    journal.append(StudyBegun(time=1))
    with path.open("ab") as file:
        file.write(b'{"op": "tri')
    assert [entry for _, entry in journal.read()] == [StudyBegun(time=1)]


def test_offsets_continue_where_they_stopped(path):
    journal = Journal(path)
    journal.append(*(Artifact(path=f"é{n}", place="x", time=n) for n in range(4)))
    offsets = [offset for offset, _ in journal.read()]
    assert offsets[-1] == path.stat().st_size
    for n, offset in enumerate(offsets):
        assert [entry.time for _, entry in journal.read(offset)] == list(range(n + 1, 4))
        assert journal.pending(offset) == 3 - n


def test_non_finite_metrics_are_standard_json_and_come_back(path):
    journal = Journal(path)
    values = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.25}
    journal.append(Values(values=values, time=1))
    journal.append_records(0, 0, [{"step": 1, "time": 1, "metrics": values}])

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    (_, first), (_, second) = journal.read()
    for metrics in (first.values, second.records[0]["metrics"]):
        assert math.isnan(metrics["a"])
        assert [metrics[name] for name in "bcd"] == [math.inf, -math.inf, 0.25]


def test_a_failed_append_leaves_nothing_behind(path, monkeypatch):
    journal = Journal(path)
    journal.append_records(0, 0, records(1))

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("study.ledger.journal.os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            journal.append_records(0, 0, records(2))
    assert journal.high_water(0, 0) == 1
    assert [r["step"] for r in journal.append_records(0, 0, records(2))] == [2]
    assert [r["step"] for _, entry in journal.read() for r in entry.records] == [1, 2]


OTHERS = [
    ('{"op":"metrics","trial":0,"replicate":0,"records":[{"st', []),
    (encode(TrialBegun(trial=4, time=2)), [4]),
    ('{"op": "trial", "trial": 4, "time": 2}\n', [4]),
    ('{"op":"metrics","records":"not looked at"}\n', []),
]


@pytest.mark.parametrize(("end", "more"), OTHERS)
def test_entries_of_one_kind_are_read_from_a_journal_that_grows(path, end, more):
    assert (list(read(path, TrialBegun)), first(path)) == ([], None)
    journal = Journal(path)
    journal.append(StudyBegun(id="a", time=1), TrialBegun(trial=3, time=1))
    with path.open("a") as file:
        file.write(end)
    assert [begun.trial for begun in read(path, TrialBegun)] == [3, *more]
    assert first(path) == StudyBegun(id="a", time=1)


@pytest.mark.parametrize("line", ["[1]", "Dear reader,", '{"op":"met\0\0\0}', '{"op":"trial",', "{}", '","time":1}'])
def test_a_line_that_is_no_entry_is_told_whoever_reads(path, line):
    path.parent.mkdir()
    path.write_text(f"{line}\n")
    for look in (lambda: list(read(path, TrialBegun)), lambda: first(path), lambda: Journal(path)):
        with pytest.raises(Damaged, match="line 1: no entry of a study's journal"):
            look()


ENTRIES = [
    StudyBegun(id="a", launch="b", name="k (paper)", params={"k": 1.5}, tags={"git.commit": "c"}, time=1),
    InputsRead(tags={"data": "d"}, time=2),
    TrialBegun(trial=0, name="trial 0 · k=2", replicates=2, params={"k": 2, "dims": [8, 16]}, tags={}, time=3),
    ReplicateBegun(trial=0, replicate=1, name="trial 0 · replicate 1", seed=7, tags={"hash.data_order": "e"}, time=4),
    Metrics(0, 1, [{"step": 1, "time": 5, "metrics": {"loss": math.inf}}]),
    Values(trial=0, values={"ndcg_at_10": 0.5}, step=3, time=6),
    Ended(trial=0, replicate=1, state=ReplicateState.COLLAPSED, reason="loss is inf", time=7),
    Ended(trial=0, state=TrialState.COLLAPSED, reason="loss is inf", attempts=2, time=8),
    Ended(state=StudyStatus.FINISHED, time=9),
    Artifact(path="report.html", place="report", time=10),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_comes_back_as_it_was(entry):
    line = encode(entry)
    assert line.startswith('{"op":"')
    assert line.endswith("}\n")
    assert decode(line) == entry
    assert type(getattr(decode(line), "state", None)) is type(getattr(entry, "state", None))
    assert "mlflow" not in line


FORMAT_1 = [
    (
        '{"op":"study","id":"a","launch":"b","params":{"k":1.5},"tags":{"mlflow.source.git.commit":"c",'
        '"git.dirty":"true","mlflow.runName":"k (paper)","state":"running"},"time":1}',
        StudyBegun(id="a", launch="b", name="k (paper)", params={"k": 1.5},
                   tags={"git.commit": "c", "git.dirty": "true"}, time=1),
    ),
    ('{"op":"study","params":{},"tags":{"data":"d"},"time":2}', InputsRead(tags={"data": "d"}, time=2)),
    (
        '{"op":"trial","trial":0,"replicates":2,"params":{"k":2},"tags":{"mlflow.runName":"trial 0 · k=2",'
        '"control":"false","state":"running"},"time":3}',
        TrialBegun(trial=0, name="trial 0 · k=2", replicates=2, params={"k": 2}, tags={"control": "false"}, time=3),
    ),
    (
        '{"op":"replicate","trial":0,"replicate":1,"seed":7,"tags":{"mlflow.user":"ada","data":"d"},"time":4}',
        ReplicateBegun(trial=0, replicate=1, seed=7, tags={"user": "ada", "data": "d"}, time=4),
    ),
    (
        '{"op":"end","trial":0,"replicate":1,"status":"FINISHED","tags":{"state":"complete"},"time":5}',
        Ended(trial=0, replicate=1, state=ReplicateState.COMPLETE, time=5),
    ),
    (
        '{"op":"end","trial":0,"replicate":null,"status":"KILLED","tags":{"attempts":"2","state":"pruned",'
        '"stop.reason":"lags"},"time":6}',
        Ended(trial=0, state=TrialState.PRUNED, reason="lags", attempts=2, time=6),
    ),
    (
        '{"op":"end","trial":null,"replicate":null,"status":"FINISHED","tags":{"state":"complete"},"time":7}',
        Ended(state=StudyStatus.FINISHED, time=7),
    ),
    (
        '{"op":"end","trial":null,"replicate":null,"status":"KILLED","tags":{"state":"interrupted"},"time":8}',
        Ended(state=StudyStatus.INTERRUPTED, time=8),
    ),
    ('{"op":"end","trial":0,"replicate":null,"status":"FAILED","tags":{},"time":9}',
     Ended(trial=0, state=TrialState.FAILED, time=9)),
    ('{"op":"artifact","path":"report.html","artifact_path":"report","time":10}',
     Artifact(path="report.html", place="report", time=10)),
]  # fmt: skip


@pytest.mark.parametrize(("line", "entry"), FORMAT_1)
def test_a_line_of_format_1_is_the_entry_that_is_written_now(line, entry):
    assert decode(line) == entry


def test_a_journal_goes_on_in_format_2(path):
    path.parent.mkdir()
    path.write_text(FORMAT_1[0][0] + "\n" + FORMAT_1[2][0] + "\n")
    before = path.read_text()
    journal = Journal(path)
    journal.append(*ENTRIES[:3])
    assert path.read_text().startswith(before)
    assert [begun.name for begun in read(path, TrialBegun)] == ["trial 0 · k=2"] * 2
    assert [type(entry) for _, entry in journal.read()] == [StudyBegun, TrialBegun, StudyBegun, InputsRead, TrialBegun]


def test_a_journal_of_a_later_format_is_refused_whoever_reads(path):
    Journal(path).append(StudyBegun(id="a", time=1), TrialBegun(trial=0, time=1))
    with path.open("a") as file:
        file.write('{"op":"study","format":3,"who":"knows"}\n{"op":"trial","what":"else"}\n')
    for look in (lambda: list(read(path, TrialBegun)), lambda: list(read(path, Metrics)), lambda: Journal(path)):
        with pytest.raises(Newer, match="has format 3, this version reads 2: use the newer version"):
            look()


def test_what_is_pending_is_counted_as_it_grows(path, monkeypatch) -> None:
    """Each byte is read at most twice, however often it is asked: every summary had read all that was not sent yet."""
    journal = Journal(path)
    journal.append(StudyBegun(id="a", time=1))
    places = [0]
    read_bytes = 0
    lines = JournalReader._lines

    def counted(self, start, end):
        nonlocal read_bytes
        read_bytes += max(0, end - start)
        return lines(self, start, end)

    monkeypatch.setattr(JournalReader, "_lines", counted)
    for trial in range(200):
        journal.append(TrialBegun(trial=trial, time=1))
        assert journal.pending(places[-1]) == sum(1 for _ in journal.read(places[-1]))
        if trial % 7 == 0:
            places += [end for end, _ in journal.read(places[-1])][:5]
            assert journal.pending(places[-1]) == sum(1 for _ in journal.read(places[-1]))
    assert read_bytes <= 2 * path.stat().st_size
    assert journal.pending(0) == 201, "replayed from its start"
    assert journal.pending(path.stat().st_size) == 0


def reopened(path, marks) -> tuple[Journal, list]:
    """The journal as the next launch opens it, and the entries that it read for that."""
    seen: list = []

    class Watched(Journal):
        def read(self, offset: int = 0):
            for end, entry in super().read(offset):
                seen.append(entry)
                yield end, entry

    return Watched(path, marks), seen


@pytest.fixture
def marks(path):
    return path.with_name("marks.json")


def written(path, marks) -> Journal:
    journal = Journal(path, marks)
    journal.append(StudyBegun(id="a", time=5), TrialBegun(trial=0, time=6), TrialBegun(trial=1, time=7))
    journal.append_records(0, 0, records(*range(500)))
    journal.append(Ended(trial=0, state=TrialState.COMPLETE, time=9))
    return journal


def known(journal) -> list:
    ended = [journal.ended(trial) for trial in (0, 1)]
    return [journal.high_water(0, 0), journal.high_water(1, 0), journal.last_time(0), journal.began, *ended]


def test_a_launch_reads_only_what_was_appended_since_the_marks_were_kept(path, marks):
    journal = written(path, marks)
    journal.close()
    again, seen = reopened(path, marks)
    assert seen == []
    assert known(again) == known(journal) == [499, -1, 1499, 5, True, False]
    again.append_records(1, 0, records(3))
    again.append(TrialBegun(trial=0, time=8))
    # A kill, without `close`.
    after, seen = reopened(path, marks)
    assert [type(entry) for entry in seen] == [Metrics, TrialBegun]
    assert known(after) == [499, 3, 1499, 5, False, False]


def test_marks_are_kept_as_the_journal_grows(path, marks, monkeypatch):
    monkeypatch.setattr("study.ledger.journal.KEEP_EVERY", 2_000)
    journal = written(path, marks)
    for step in range(500, 600):
        journal.append_records(0, 0, records(step))
    _, seen = reopened(path, marks)
    assert 0 < len(seen) < 30


def hole(path) -> None:
    content = bytearray(path.read_bytes())
    content[300:320] = b"\0" * 20
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [hole, lambda path: path.write_bytes(path.read_bytes()[:300] + b"\n")])
def test_marks_hide_no_damage_of_a_journal_that_has_not_grown(path, marks, spoil):
    written(path, marks).close()
    spoil(path)
    with pytest.raises(Damaged, match="no entry of a study's journal"):
        Journal(path, marks)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"end": "?"}', None])
def test_without_marks_that_fit_the_whole_journal_is_read(path, marks, content):
    written(path, marks).close()
    if content is None:
        other = written(path.with_name("other.jsonl"), marks)
        other.append_records(0, 0, records(777))
        other.close()
    else:
        marks.write_text(content)
    again, seen = reopened(path, marks)
    assert len(seen) == 5
    assert known(again) == [499, -1, 1499, 5, True, False]


def test_marks_that_cannot_be_written_stop_nothing(path, marks, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("study.ledger.marks.write_whole", full)
    written(path, marks).close()
    assert "no space left" in caplog.text
    assert len(reopened(path, marks)[1]) == 5
