"""Places in a study's folder stay right when the folder is moved, those of earlier versions included."""

from __future__ import annotations

from study.protocol.folder import StudyFolder


def test_a_place_is_found_again_in_the_folder_that_was_moved(tmp_path) -> None:
    model = tmp_path / "trials" / "0003" / "replicate-0" / "model"
    model.mkdir(parents=True)
    folder = StudyFolder(tmp_path)
    assert folder.resolved(folder.inside(model)) == str(model)
    for old in ("/studies/k/trials/0003/replicate-0/model", str(model)):
        assert folder.resolved(old) == str(model)


def test_a_copy_s_own_file_comes_before_the_original_s(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.html").touch()
    assert StudyFolder(tmp_path / "b").resolved(str(tmp_path / "a" / "report.html")) == str(
        tmp_path / "b" / "report.html"
    )


def test_what_lies_elsewhere_stays_as_it_is(tmp_path) -> None:
    folder = StudyFolder(tmp_path)
    for place in ("s3://bucket/k/trials/0003?region=eu-west-1", "/elsewhere/model"):
        assert folder.inside(place) == folder.resolved(place) == place
