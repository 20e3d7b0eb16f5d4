"""Adapters beside frozen weights: they change nothing at first, and only they are trained, sent and
saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import srpfl
import tiny
from srpfl.clock.base import Work
from srpfl.core.initial import initial_model
from srpfl.core.split import Params, state_of
from srpfl.data import Padded, Pooled, Samples
from srpfl.errors import ConfigError, RunFolderError
from srpfl.loop.watchers import Watcher
from srpfl.models import Adapters, lora, merged
from srpfl.runs.records import RoundRecord

TOKENS, WIDTH, CLASSES = 20, 8, 3


class Layer(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        three = (part(x).unflatten(-1, (2, -1)).transpose(1, 2) for part in self._three())
        seen = F.scaled_dot_product_attention(*three, attn_mask=mask[:, None, None])
        x = self.norms[0](x + self.dropout(seen.transpose(1, 2).flatten(2)))
        more: Tensor = self.norms[1](x + self.down(F.gelu(self.up(x))))
        return more

    def _three(self) -> tuple[nn.Module, ...]:
        return self.query, self.key, self.value


class Reader(nn.Module):
    """Reads masked tokens, like the models of Hugging Face, and is as small as can be."""

    def __init__(self, dropout: float = 0.0, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(Layer(dropout) for _ in range(layers))
        self.classifier = nn.Linear(WIDTH, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x, mask = self.embed(input_ids), attention_mask.bool()
        for layer in self.layers:
            x = layer(x, mask)
        there = attention_mask[..., None].to(x.dtype)
        logits: Tensor = self.classifier((x * there).sum(1) / there.sum(1))
        return logits


def reader(dropout: float = 0.0, layers: int = 1) -> Reader:
    torch.manual_seed(0)
    return Reader(dropout, layers)


def sentences(clients: int = 4, each: int = 12, length: int = 6) -> Pooled:
    rng = np.random.default_rng(0)

    def pool() -> Samples:
        y = rng.integers(CLASSES, size=clients * each)
        ids = rng.integers(3, TOKENS, (len(y), length))
        ids[:, 0] = y  # so that there is something to learn
        mask = (np.arange(length) < rng.integers(2, length + 1, (len(y), 1))).astype(np.int64)
        return Samples({"input_ids": ids * mask, "attention_mask": mask}, y)

    parts = np.split(np.arange(clients * each), clients)
    return Pooled("sentences", pool(), pool(), parts, parts, CLASSES, Padded())


def inputs(count: int = 5) -> dict[str, Tensor]:
    return {name: torch.from_numpy(x[:count]) for name, x in sentences().train_pool.x.items()}


def trained(model: nn.Module) -> list[str]:
    return [name for name, value in model.named_parameters() if value.requires_grad]


def played(model: nn.Module, personal: Any = ("classifier",), **changes: Any) -> srpfl.Run:
    rule = srpfl.SGD(lr=0.1, momentum=0.5)
    choices: dict[str, Any] = {
        "algorithm": srpfl.FedRep(head_epochs=2, body_epochs=1, personal=personal, rule=rule),
        "data": sentences(),
        "rounds": 2,
        "engine": "loop",
        "evaluate_every": 0,
    }
    return srpfl.simulate(model=model, **{**choices, **changes})


def shared(run: srpfl.Run) -> Params:
    assert run.state is not None
    return run.state.shared


@pytest.mark.parametrize("targets", [None, "query", ["query", "value"], "layers.1"])
def test_a_fresh_adapter_changes_no_output_by_a_bit(targets: Any) -> None:
    plain = reader(layers=2).eval()
    adapted = lora(plain, rank=3, targets=targets).eval()
    assert torch.equal(adapted(**inputs()), plain(**inputs()))
    assert any(Adapters()(name) for name in trained(adapted))


def test_what_is_pretrained_is_frozen_and_in_memory_once() -> None:
    plain = reader()
    adapted = lora(plain, targets=["query", "value"])
    assert all(Adapters()(n) or n.startswith("classifier") for n in trained(adapted))
    assert all(value.requires_grad for value in plain.parameters())
    there = dict(plain.named_parameters())
    for name, value in adapted.named_parameters():
        if not value.requires_grad:
            assert value.data_ptr() == there[name].data_ptr()
    copies = [adapted, initial_model(adapted, seed=1)]
    engine = srpfl.engine.VectorisedEngine(copies[1], sentences())
    copies += [engine.model, engine.phases._clean]
    places = {copy.get_parameter("embed.weight").data_ptr() for copy in copies}
    assert places == {plain.embed.weight.data_ptr()}


def test_a_run_keeps_what_is_frozen_and_draws_the_rest_from_its_seed() -> None:
    adapted = lora(reader(), rank=2)
    one, other = (initial_model(adapted, seed=seed) for seed in (1, 2))
    for name, value in adapted.named_parameters():
        mine, yours = one.get_parameter(name), other.get_parameter(name)
        same = torch.equal(mine, yours)
        assert same == (not value.requires_grad or "lora_B" in name)
        if not value.requires_grad:
            assert torch.equal(mine, value)


def test_a_partly_frozen_layer_keeps_its_frozen_weights() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.requires_grad_(False)
    before = state_of(layer)
    made = initial_model(layer, seed=5)
    assert torch.equal(made.weight, before["weight"])
    assert not torch.equal(made.bias, before["bias"])
    assert torch.equal(layer.weight, before["weight"])


def test_merged_adapters_give_the_outputs_of_those_beside() -> None:
    adapted = lora(lora(reader(), targets="query", name="one"), rank=2, name="two").double()
    for name, value in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(value)
    plain = merged(adapted)
    assert not any(Adapters()(name) for name in plain.state_dict())
    assert plain.state_dict().keys() == reader().state_dict().keys()
    torch.testing.assert_close(plain(**inputs()), adapted(**inputs()), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(plain(**inputs()).float(), reader()(**inputs()), atol=1e-2)


def test_two_adapters_split_by_name() -> None:
    adapted = lora(lora(reader(), targets="query", name="common"), targets="value", name="own")
    parts = srpfl.FedRep(personal=Adapters("own", also=("classifier",))).split(adapted)
    assert {name.split(".")[2] for name in parts.shared} == {"query"}
    assert {name.split(".")[-1] for name in parts.personal} == {"own", "weight", "bias"}
    assert "embed.weight" in parts.fixed


SPLITS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "shared adapters, personal head": (lambda: lora(reader(), rank=2), ("classifier",)),
    "personal adapters, shared head": (lambda: lora(reader(), rank=2), Adapters()),
    "with dropout": (lambda: lora(reader(0.2), rank=2, targets="query"), ("classifier",)),
    "two adapters": (
        lambda: lora(lora(reader(), targets="query", name="common"), targets="value", name="own"),
        Adapters("own", also=("classifier",)),
    ),
}


def check_shared(one: srpfl.Run, other: srpfl.Run) -> None:
    assert shared(one)
    for key, value in shared(one).items():
        torch.testing.assert_close(shared(other)[key], value, rtol=1e-9, atol=1e-12)


def check_agreement(name: str, engine: str, **changes: Any) -> None:
    make, personal = SPLITS[name]
    one, other = (
        played(make(), personal, engine=kind, precision="float64", **changes)
        for kind in ("loop", engine)
    )
    check_shared(one, other)
    for mine, yours in zip(one.evaluations, other.evaluations, strict=True):
        assert mine.value == yours.value


@pytest.mark.parametrize("name", SPLITS)
def test_a_stack_agrees_with_the_loop(name: str) -> None:
    """Also where each batch is cut to its longest text, and a stack of batches to its."""
    check_agreement(name, "vectorised", rounds=1, data=sentences(length=30))


class Heedless(Reader):
    """Reads what texts are filled up with, too."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.embed(input_ids).mean(1))
        return logits


def test_a_model_that_reads_what_texts_are_filled_up_with_is_not_stacked() -> None:
    plain, chosen = Heedless(), Heedless()
    with pytest.warns(srpfl.SrpflWarning, match="filled up with, beyond its attention_mask: "):
        run = played(chosen, data=sentences(length=30), engine="auto")
    check_shared(played(plain, data=sentences(length=30)), run)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vectorised", "workers"])
def test_whole_runs_agree(engine: str) -> None:
    waits = srpfl.Doubling(start=2, every=1)
    name = "shared adapters, personal head"
    check_agreement(name, engine, evaluate_every=1, participation=waits)


class Stops(Watcher):
    def round(self, record: RoundRecord) -> None:
        if record.round == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_a_resumed_run_is_exact_and_holds_no_frozen_weight(engine: str, tmp_path: Path) -> None:
    model = lora(reader(0.1), rank=2)
    whole = played(model, engine=engine, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        played(model, engine=engine, out=tmp_path / "run", watchers=[Stops()])
    again = played(model, engine=engine, out=tmp_path / "run", resume=True)
    for name, value in shared(whole).items():
        assert torch.equal(shared(again)[name], value)
    saved = [name for file in tmp_path.rglob("*.safetensors") for name in load_file(file)]
    assert any("lora_A" in name for name in saved)
    assert all("lora_" in n or "classifier" in n or n == "@clients" for n in saved)
    other = lora(Reader(0.1, 1), rank=2)  # another backbone
    with pytest.raises(RunFolderError, match="differs in fixed"):
        played(other, engine=engine, out=tmp_path / "run", resume=True)


def test_the_clock_sees_only_the_bytes_of_what_is_shared_and_trained() -> None:
    moved: list[tuple[int, int]] = []

    class Noting(srpfl.FixedExponential):
        def times(self, seed: int, round: int, clients: Any, population: int, work: Work) -> Any:
            moved.append((work.up, work.down))
            return super().times(seed, round, clients, population, work)

    played(lora(reader(), rank=2, targets="query"), clock=Noting(), rounds=1)
    adapters = (2 * WIDTH + WIDTH * 2) * 4  # A and B, four bytes each
    assert moved == [(adapters, adapters)]


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(x).mean(1))
        return logits


def test_pytorchs_own_attention_is_left_as_it_is_and_the_layers_around_it_adapted() -> None:
    adapted = lora(Mixed(), rank=2).eval()
    places = {name.split(".lora_")[0] for name in trained(adapted) if Adapters()(name)}
    assert places == {"encoder.layers.0.linear1", "encoder.layers.0.linear2"}
    for name, value in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(value)
    x = torch.randn(3, 4, 8)
    with torch.no_grad():  # where PyTorch would take its fast path, past the adapters
        torch.testing.assert_close(adapted(x), merged(adapted)(x))


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"rank": 0}, "the rank of adapters must be at least 1, not 0"),
        ({"name": "a.b"}, "must be a word without dots"),
        ({"targets": "qurey"}, "no linear layer outside of the head is named 'qurey'"),
        ({"targets": "self_attn"}, "is an nn.MultiheadAttention"),
        ({"targets": lambda name: False}, "no linear layer is left to adapt"),
        ({"head": "tail"}, "the model has no part named 'tail'"),
    ],
)
def test_what_cannot_be_adapted_is_refused(choices: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        lora(Mixed(), **choices)
    with pytest.raises(ConfigError, match="has an adapter 'default' already"):
        lora(lora(Mixed()))


def test_what_is_below_the_lowest_adapter_is_computed_once() -> None:
    model, data = lora(reader(layers=3), rank=2, targets="layers.2"), sentences()
    kept, above = srpfl.data.precomputed(data, model)
    assert kept.train(1).x["features"].shape == (12, 6, WIDTH)
    calls: list[str] = []
    for name in ("embed", "layers.0", "layers.1", "layers.2"):
        part = above.inner.get_submodule(name)
        part.register_forward_pre_hook(lambda module, _: calls.append(type(module).__name__))
    above(**{name: torch.from_numpy(x) for name, x in kept.train(0).x.items()})
    assert calls == ["_Known", "_Known", "_Known", "Layer"]
    above = srpfl.data.precomputed(data, model)[1]
    whole = played(model, precision="float32")
    for engine in ("loop", "vectorised"):
        run = played(above, ("inner.classifier",), data=kept, engine=engine)
        for name, value in shared(whole).items():
            torch.testing.assert_close(shared(run)[f"inner.{name}"], value, rtol=1e-4, atol=1e-6)


def test_what_is_computed_once_keeps_its_task_and_its_names() -> None:
    rng = np.random.default_rng(0)
    pool = Samples(*(rng.integers(1, TOKENS, (12, 6)) for _ in range(2)))
    parts = np.split(np.arange(12), 3)
    data = Pooled("text", pool, pool, parts, parts, 0, task="next-token", names=("a", "b", "c"))
    net = srpfl.models.CharTransformer(TOKENS, width=8, heads=2, length=6)
    kept, above = srpfl.data.precomputed(data, lora(net, rank=2, targets="blocks.1"))
    assert kept.names == ("a", "b", "c")
    assert played(above, "inner.head", data=kept, rounds=1, evaluate_every=1).accuracy
    with pytest.raises(ConfigError, match=r"no part named 'norm' \(there is 'inner\.norm'\)"):
        played(above, "norm", data=kept)


def test_a_cut_that_would_change_the_outputs_is_not_made() -> None:
    class LooksBack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            first = self.first(x)
            logits: Tensor = self.head(self.second(first) + first)
            return logits

    model = LooksBack()
    model.first.requires_grad_(False)
    model.second.requires_grad_(False)
    kept, above = srpfl.data.precomputed(tiny.data(), model)
    x = torch.from_numpy(tiny.data().train(0).x)
    assert torch.equal(torch.from_numpy(kept.train(0).x[0]), model.first(x))
    features, inputs = (torch.from_numpy(each) for each in kept.train(0).x)
    assert torch.equal(above(features, inputs), model(x))
    with pytest.raises(ConfigError, match="nothing can be computed once"):
        srpfl.data.precomputed(tiny.data(), LooksBack())

    class InTraining(LooksBack):
        def forward(self, x: Tensor) -> Tensor:
            hidden = self.second(first := self.first(x))
            logits: Tensor = self.head(hidden + first if self.training else hidden)
            return logits

    model = InTraining()
    model.first.requires_grad_(False)
    model.second.requires_grad_(False)
    kept, _ = srpfl.data.precomputed(tiny.data(), model)
    assert torch.equal(torch.from_numpy(kept.train(0).x[0]), model.first(x))
