"""The table of docs/inputs.md: complete for the installed transformers, and true of the architectures tried here."""

from __future__ import annotations

import re

import pytest
import torch

from benchmarks import architectures
from trainables import encoders, overrides, trainers
from trainables.context import Context

TRIED = (
    "albert", "bert", "deberta-v2", "distilbert", "eurobert", "modernbert", "perceiver", "reformer", "roberta",
    "roformer",
)  # fmt: skip


@pytest.fixture(scope="module")
def table() -> dict[str, list[str]]:
    """Model type -> its three cells."""
    page = architectures.PAGE.read_text()
    made = page[page.index(architectures.BEGIN) : page.index(architectures.END)]
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", made, re.MULTILINE)
    sentences = dict(re.findall(r"^(\d+)\. (.*)$", made, re.MULTILINE))
    cells = {name: row.split(" | ") for name, row in rows}
    return {
        name: [re.sub(r"refused \((\d+)\)", lambda found: f"refused: {sentences[found[1]]}", cell) for cell in row]
        for name, row in cells.items()
    }


def test_every_architecture_of_the_installed_transformers_stands_in_the_table(table) -> None:
    missing = set(architectures.names()) - table.keys()
    assert not missing, "run `python -m benchmarks.architectures`"
    kinds = {cell.partition(":")[0] for row in table.values() for cell in row}
    assert kinds == {"works", "works with `rescale=untied`", "refused"}


@pytest.mark.parametrize("recipe", architectures.RECIPES)
@pytest.mark.parametrize("name", TRIED)
def test_the_table_is_true(name, recipe, table) -> None:
    if name not in architectures.names():
        pytest.skip(f"the installed transformers has no {name}")
    torch.set_num_threads(1)
    assert architectures.answer(recipe, name) == table[name][architectures.RECIPES.index(recipe)]


@pytest.mark.parametrize("name", ["bert", "eurobert", "modernbert", "roberta"])
@pytest.mark.parametrize("recipe", architectures.RECIPES)
def test_sentence_transformers_cuts_queries_and_documents_as_the_recipe_does(name, recipe, tmp_path) -> None:
    """Padded outputs, here three of each vocabulary, are no terms there either."""
    from sentence_transformers import SentenceTransformer, SparseEncoder

    architectures.make(name, tmp_path / "backbone")
    module = trainers.module(recipe, "recipe")
    kind = trainers.module(recipe, "config").Config
    settings = architectures.settings(kind, tmp_path) | {"backbone": str(tmp_path / "backbone")}
    if recipe == "splade":
        settings |= {"rescale": "untied"}
    config = overrides.apply(kind(), settings)
    made = module.build(config, Context(seed=0, folder=tmp_path, device=torch.device("cpu")))
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2 * (parameter != 0))
    (tmp_path / "model").mkdir()
    made.export(tmp_path / "model")
    theirs = (SparseEncoder if recipe == "splade" else SentenceTransformer)(str(tmp_path / "model"), device="cpu")
    assert theirs.max_seq_length == architectures.DOCUMENT
    texts = [architectures.LONG, architectures.TEXTS[0]]
    made.model.eval()
    dense = {"convert_to_sparse_tensor": False} if recipe == "splade" else {"convert_to_tensor": True}
    with torch.inference_mode():
        for ours, encode in (
            (made.encoder.queries(texts), theirs.encode_query),
            (made.encoder.documents(texts), theirs.encode_document),
            (made.encoder.documents(texts), theirs.encode),
        ):
            found = encode(texts, **dense)
            if recipe == "angle":
                # Compared by cosine: at whatever length.
                found = torch.nn.functional.normalize(found)
            torch.testing.assert_close(found, ours, atol=1e-5, rtol=1e-4)
            if recipe == "splade":
                assert (found[:, : made.model.terms] > 0).any()
                assert not (found[:, made.model.terms :] > 0).any()


def test_a_padded_vocabulary_has_no_terms_that_no_token_stands_for(tmp_path) -> None:
    from trainables.splade.model import SpladeEncoder

    architectures.make("modernbert", tmp_path)
    mlm, tokenizer = encoders.load_masked_lm(str(tmp_path))
    with torch.no_grad():
        mlm.get_output_embeddings().bias.fill_(1.0)
    tokens = encoders.tokenize(tokenizer, [architectures.LONG], 24, torch.device("cpu"))
    rows = mlm.get_output_embeddings().weight.shape[0]
    assert (SpladeEncoder(mlm)(tokens) > 0).sum() > len(tokenizer), "without a tokenizer all outputs are terms"
    encoder = SpladeEncoder(mlm, tokenizer)
    vectors = encoder(tokens)
    assert encoder.terms == len(tokenizer) == rows - 3
    assert (vectors[:, encoder.terms :] == 0).all()
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=0.1)
    for _ in range(2):
        encoder(tokens).sum().backward()
        optimiser.step()
    assert (encoder(tokens)[:, encoder.terms :] == 0).all(), "nothing that is learnt brings them back"


def test_a_head_that_is_no_linear_layer_is_refused_with_the_reason_at_once(tmp_path) -> None:
    """DeBERTa-v2's other head takes the input embeddings; untying them would not help."""
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    from trainables.splade.model import SpladeEncoder

    mlm = DebertaV2ForMaskedLM(
        DebertaV2Config(
            vocab_size=60,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=48,
            legacy=False,
        )
    )
    with pytest.raises(ValueError, match="DebertaV2ForMaskedLM does more to its logits than its output embeddings say"):
        SpladeEncoder(mlm)
