"""Every form that data come in is read or refused in a sentence, and the page says which."""

import datasets

from benchmarks import data_forms


def test_the_table_of_data_forms_is_up_to_date(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    assert data_forms.table() == data_forms.current(), "run python -m benchmarks.data_forms"
