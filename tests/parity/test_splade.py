"""SPLADE's pooling, losses and gradients against sentence-transformers' modules, and against finite differences."""

import pytest
import torch
from sentence_transformers.sparse_encoder import SparseEncoder
from sentence_transformers.sparse_encoder.losses import (
    FlopsLoss,
    SparseDistillKLDivLoss,
    SparseMarginMSELoss,
    SparseMultipleNegativesRankingLoss,
    SpladeLoss,
)
from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from trainables import encoders
from trainables.contrastive import info_nce
from trainables.encoders import Tokens
from trainables.splade import losses, pooling
from trainables.splade.model import SpladeEncoder, rescale_head
from trainables.splade.pooling import max_log1p_relu

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
KINDS = pytest.mark.parametrize("kind", TOLERANCE)


def close(actual, expected):
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=["ragged", "padded"])
def many_tiles(request, monkeypatch):
    """Both implementations on this CPU, each with several tiles and a remainder."""
    monkeypatch.setattr(pooling, "CPU_TILE", 100)
    monkeypatch.setattr(pooling, "GPU_TILE", 400)
    if request.param == "padded":
        monkeypatch.setattr(pooling, "_ragged", pooling._padded)


def head_inputs(kind, texts=5, length=7, width=6, vocabulary=31):
    torch.manual_seed(1)
    tensors = torch.randn(texts, length, width), torch.randn(vocabulary, width), torch.randn(vocabulary)
    mask = (torch.arange(length) < torch.tensor([7, 1, 4, 6, 3]).unsqueeze(1)).long()
    mask[3, 0] = 0  # a hole, as left padding would make
    return *(t.to(kind).requires_grad_() for t in tensors), mask


@KINDS
@pytest.mark.parametrize("with_bias", [True, False])
def test_pooling_and_its_gradients(kind, with_bias, many_tiles):
    hidden, weight, bias, mask = head_inputs(kind)
    logits = hidden @ weight.T + (bias if with_bias else 0)
    theirs = SpladePooling("max").train()({"token_embeddings": logits, "attention_mask": mask})["sentence_embedding"]
    ours = max_log1p_relu(hidden, mask, weight, bias if with_bias else None)
    close(ours, theirs)
    assert 0.2 < (theirs > 0).double().mean() < 0.95, "both sides of the relu must be tried"
    leaves = [hidden, weight, bias] if with_bias else [hidden, weight]
    upstream = torch.randn_like(theirs)
    for ours_grad, theirs_grad in zip(
        torch.autograd.grad(ours, leaves, upstream), torch.autograd.grad(theirs, leaves, upstream), strict=True
    ):
        close(ours_grad, theirs_grad)


def test_pooling_gradcheck(many_tiles):
    hidden, weight, bias, mask = head_inputs(torch.float64, length=7, width=2, vocabulary=5)
    pooling.CPU_TILE = pooling.GPU_TILE = 20  # put back by the fixture
    assert torch.autograd.gradcheck(lambda h, w, b: max_log1p_relu(h, mask, w, b), (hidden, weight, bias))


def test_pooling_of_nothing(many_tiles):
    hidden, weight, bias, mask = head_inputs(torch.float32)
    mask[2] = 0
    vectors = max_log1p_relu(hidden, mask, weight, bias)
    assert not vectors[2].any()
    (vectors * 0).sum().backward()
    assert not hidden.grad.any()
    assert not weight.grad.any()


def test_pooling_is_float32_under_bf16_autocast(many_tiles):
    hidden, weight, bias, mask = head_inputs(torch.float32)
    expected = max_log1p_relu(hidden, mask, weight, bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = max_log1p_relu(hidden, mask, weight, bias)
        low = max_log1p_relu(hidden.bfloat16(), mask, weight, bias)
    assert vectors.dtype == low.dtype == torch.float32
    assert not torch.equal(vectors, expected), "autocast must reach the product"
    torch.testing.assert_close(vectors, expected, rtol=0.05, atol=0.05)
    low.sum().backward()
    assert weight.grad.dtype == torch.float32
    assert hidden.grad.dtype == torch.float32


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 1000.0])
def test_bf16_logits_cost_a_weight_about_what_their_inputs_do_however_large_the_head(scale, many_tiles):
    """A logit in bf16 is off by at most 2^-8 of itself, so log(1 + x) by less than 2^-8; against float64."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(4, 24, 64), scale * torch.randn(300, 64) / 8
    mask = torch.ones(4, 24, dtype=torch.long)
    exact = [tensor.double().requires_grad_() for tensor in (hidden, weight)]
    rounded = [tensor.bfloat16().double() for tensor in (hidden, weight)]
    low = [tensor.clone().requires_grad_() for tensor in (hidden, weight)]
    expected, of_inputs = (max_log1p_relu(h, mask, w, None) for h, w in (exact, rounded))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = max_log1p_relu(low[0], mask, low[1], None)
    of_logits = (found.double() - of_inputs).abs()
    assert of_logits.max() <= 2**-8
    assert of_logits.square().mean().sqrt() < 1.5 * (of_inputs - expected).square().mean().sqrt()
    upstream = torch.randn(expected.shape, dtype=torch.float64)
    theirs = torch.autograd.grad(expected, exact, upstream)
    ours = torch.autograd.grad(found, low, upstream.float())
    for one, other in zip(ours, theirs, strict=True):
        assert torch.cosine_similarity(one.double().flatten(), other.flatten(), dim=0) > 0.98


def vectors(kind, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 40, generator=generator, dtype=torch.float64).relu().to(kind).requires_grad_()


def compare(ours, theirs, leaves):
    close(ours, theirs)
    ours_grads, theirs_grads = torch.autograd.grad(ours, leaves), torch.autograd.grad(theirs, leaves)
    for ours_grad, theirs_grad in zip(ours_grads, theirs_grads, strict=True):
        close(ours_grad, theirs_grad)


@KINDS
def test_flops(kind):
    leaf = vectors(kind, 6, 0)
    compare(losses.flops(leaf), FlopsLoss(None).compute_loss_from_embeddings(leaf), [leaf])


@KINDS
def test_info_nce_with_hard_negatives(kind):
    queries, positives, negatives = (vectors(kind, 6, seed) for seed in range(3))
    # Ours are example by example, theirs column by column: the order of candidates must not matter.
    documents = torch.stack([positives, negatives], 1).flatten(0, 1)
    ours = info_nce(queries @ documents.T, torch.arange(0, 12, 2))
    theirs = SparseMultipleNegativesRankingLoss(None).compute_loss_from_embeddings(
        [queries, positives, negatives], None
    )
    compare(ours, theirs, [queries, positives, negatives])


@KINDS
@pytest.mark.parametrize("name", ["margin_mse", "kl"])
def test_distillation(kind, name):
    queries, *documents = (vectors(kind, 6, seed) for seed in range(4))
    teacher = torch.randn(6, 3, dtype=kind)
    scores = torch.stack([(queries * document).sum(1) for document in documents], 1)
    if name == "margin_mse":
        theirs = SparseMarginMSELoss(None).compute_loss_from_embeddings(
            [queries, *documents], teacher[:, :1] - teacher[:, 1:]
        )
        ours = losses.margin_mse(scores, teacher)
    else:
        reference = SparseDistillKLDivLoss(None, temperature=1.0)
        theirs = reference.compute_loss_from_embeddings([queries, *documents], teacher)
        ours = losses.kl(scores, teacher)
    compare(ours, theirs, [queries, *documents])


@KINDS
def test_whole_model_loss_and_parameter_gradients(kind, tmp_path):
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(encoders.EMBEDDED)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=24,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.1,
    )  # fmt: skip
    mlm = BertForMaskedLM(config)
    rescale_head(mlm, 2.0, "tied", rescale_bias=False)
    encoders.export(mlm, tokenizer, tmp_path)

    texts = [["sort a list", "open the file"], ["def sort(items)", "with open(path) as f"], ["import os", "x = 1"]]
    reference = SparseEncoder(modules=[MLMTransformer(str(tmp_path)), SpladePooling("max")], device="cpu").to(kind)
    features = [reference.preprocess(column) for column in texts]
    loss = SpladeLoss(
        reference,
        SparseMultipleNegativesRankingLoss(reference),
        query_regularizer_weight=0.3,
        document_regularizer_weight=0.1,
    )
    parts = loss.train()(features)
    sum(parts.values()).backward()

    loaded, _ = encoders.load_masked_lm(str(tmp_path))
    model = SpladeEncoder(loaded.to(kind).train())
    queries = model(encoders.tokenize(tokenizer, texts[0], 32, torch.device("cpu")))
    in_pairs = [text for pair in zip(*texts[1:], strict=True) for text in pair]
    documents = model(encoders.tokenize(tokenizer, in_pairs, 32, torch.device("cpu")))
    contrastive = info_nce(queries @ documents.T, torch.tensor([0, 2]))
    close(contrastive, parts["base_loss"])
    close(0.3 * losses.flops(queries), parts["query_regularizer_loss"])
    close(0.1 * losses.flops(documents), parts["document_regularizer_loss"])
    (contrastive + 0.3 * losses.flops(queries) + 0.1 * losses.flops(documents)).backward()
    ours, theirs = dict(loaded.named_parameters()), dict(reference[0].model.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, parameter in theirs.items():
        scale = parameter.grad.abs().max().clamp(min=1)
        close(ours[name].grad / scale, parameter.grad / scale)


def test_padding_does_not_reach_the_vector():
    torch.manual_seed(0)
    mlm = BertForMaskedLM(BertConfig(vocab_size=60, hidden_size=16, num_attention_heads=2, num_hidden_layers=1,
                                     intermediate_size=24)).eval()  # fmt: skip
    tokens = Tokens(torch.tensor([[5, 6, 7, 0]]), torch.tensor([[1, 1, 1, 0]]))
    other = Tokens(torch.tensor([[5, 6, 7, 9]]), tokens.mask)
    torch.testing.assert_close(SpladeEncoder(mlm)(tokens), SpladeEncoder(mlm)(other))
