"""Attention and dropout of a stack of clients are those of each client alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from srpfl.engine.dropout import with_keyed_dropout
from srpfl.engine.functions import Functions
from srpfl.engine.threads import one_thread

from .alone import (
    CASES,
    CLIENTS,
    EXACT,
    KEYS,
    Applied,
    Case,
    Made,
    called,
    check_low,
    compare,
    flat,
    images,
    numbers,
    prepared,
)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Small tensors: more threads only get in each other's way."""
    torch.manual_seed(0)
    with one_thread():
        yield


def attends(**how: Any) -> Callable[..., Any]:
    """A self-attention layer with masks among its inputs."""

    class SelfAttention(nn.Module):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            self.layer = nn.MultiheadAttention(8, 2, **options)

        def forward(self, x: Tensor, *masks: Tensor) -> Any:
            names = ("attn_mask", "key_padding_mask")
            given = dict(zip(names, masks, strict=False))
            return self.layer(x, x, x, **given, **how)

    return SelfAttention


def causal(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def padding(batch: int, length: int) -> Tensor:
    return torch.arange(length) > torch.randint(1, length, (batch, 1))


ATTENTION: dict[str, Callable[[], Made]] = {
    "self": lambda: (attends()(), images(5, 3, 8)),
    "self-batch-first-no-weights": lambda: (
        attends(need_weights=False)(batch_first=True),
        images(3, 5, 8),
    ),
    "self-alone": lambda: (attends()(), images(5, 8)),
    "self-masks": lambda: (
        attends(average_attn_weights=False)(bias=False),
        lambda: (numbers(5, 3, 8), causal(5), padding(3, 5)),
    ),
    "self-masks-no-weights": lambda: (
        attends(need_weights=False)(batch_first=True),
        lambda: (numbers(3, 5, 8), numbers(6, 5, 5), padding(3, 5).double() * -3),
    ),
    "self-causal": lambda: (
        attends(need_weights=False, is_causal=True)(),
        lambda: (numbers(5, 3, 8), causal(5)),
    ),
    "self-extra-keys": lambda: (
        attends()(add_bias_kv=True, add_zero_attn=True),
        lambda: (numbers(5, 3, 8), causal(5), padding(3, 5)),
    ),
    "memory": lambda: (nn.MultiheadAttention(8, 2), lambda: memory(7, 8, 8)),
    "memory-other-widths": lambda: (
        nn.MultiheadAttention(8, 2, kdim=4, vdim=6),
        lambda: memory(7, 4, 6),
    ),
    "keys-are-values": lambda: (
        KeysAreValues(),
        lambda: (numbers(5, 3, 8), numbers(7, 3, 8)),
    ),
    "encoder": lambda: (
        nn.TransformerEncoder(encoder_layer(), 2, enable_nested_tensor=False),
        images(5, 3, 8),
    ),
    "encoder-masks": lambda: (
        nn.TransformerEncoder(
            encoder_layer(batch_first=True, norm_first=True),
            2,
            nn.LayerNorm(8),
            enable_nested_tensor=False,
        ),
        lambda: (numbers(3, 5, 8), causal(5), padding(3, 5)),
    ),
    "decoder": lambda: (
        nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, 0.0), 2),
        lambda: (numbers(5, 3, 8), numbers(7, 3, 8), causal(5)),
    ),
    "transformer": lambda: (
        nn.Transformer(8, 2, 1, 1, 12, 0.0, batch_first=True),
        lambda: (numbers(3, 5, 8), numbers(3, 4, 8)),
    ),
    "function": lambda: (Applied(F.scaled_dot_product_attention), lambda: three(2, 3, 5, 4)),
    "function-3d": lambda: (Applied(F.scaled_dot_product_attention), lambda: three(3, 5, 4)),
    "function-2d": lambda: (Applied(F.scaled_dot_product_attention), lambda: three(5, 4)),
    "function-causal": lambda: (
        Applied(lambda *x: F.scaled_dot_product_attention(*x, is_causal=True, scale=0.3)),
        lambda: three(2, 3, 5, 4),
    ),
    "function-mask": lambda: (
        Applied(F.scaled_dot_product_attention),
        lambda: (*three(2, 3, 5, 4), ~causal(5)),
    ),
    "function-mask-of-samples": lambda: (
        Applied(F.scaled_dot_product_attention),
        lambda: (*three(2, 3, 5, 4), numbers(2, 1, 5, 5)),
    ),
    "function-mask-of-all": lambda: (
        Applied(F.scaled_dot_product_attention),
        lambda: (*three(2, 3, 5, 4), numbers(1, 1, 5, 5)),
    ),
}


def three(*shape: int) -> tuple[Tensor, Tensor, Tensor]:
    return numbers(*shape), numbers(*shape), numbers(*shape)


def memory(length: int, keys: int, values: int) -> tuple[Tensor, Tensor, Tensor]:
    return numbers(5, 3, 8), numbers(length, 3, keys), numbers(length, 3, values)


def encoder_layer(dropout: float = 0.0, **how: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 12, dropout, **how)


class KeysAreValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2)

    def forward(self, x: Tensor, memory: Tensor) -> Any:
        return self.layer(x, memory, memory, need_weights=False)[0]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[3]])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_a_stack(name: str, case: Case, training: bool) -> None:
    model, inputs = ATTENTION[name]()
    compare(model.train(training), inputs, case)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_a_traced_stack(name: str) -> None:
    compare(*ATTENTION[name](), Case(0, 0), trace=True)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_attention_outside_of_training_takes_no_path_of_its_own() -> None:
    """PyTorch's fast path, for passes without gradients, knows no stacks and no masks of ours.
    It puts samples of different lengths into a nested tensor, and warns of that."""
    model = Hiding(nn.TransformerEncoder(encoder_layer(0.3, batch_first=True), 2)).double().eval()
    x, hidden = numbers(CLIENTS, 2, 5, 8), torch.arange(5) > torch.tensor([[2], [4]])
    with torch.no_grad():
        expected = torch.stack([model(one, hidden) for one in x])
        for net in (prepared(model), with_keyed_dropout(model)):  # the second: as a loop does
            alone = torch.stack([called(net, {}, (one, hidden), KEYS[0])[0] for one in x])
            torch.testing.assert_close(alone[:, ~hidden], expected[:, ~hidden])
        net = prepared(model)
        stacked = torch.vmap(lambda x: called(net, {}, (x, hidden), KEYS[0])[0])(x)
    torch.testing.assert_close(stacked, alone, rtol=EXACT, atol=EXACT)


class Hiding(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, hidden: Tensor) -> Any:
        return self.net(x, src_key_padding_mask=hidden)


DROPPING: dict[str, Callable[[], Made]] = {
    "layers": lambda: (
        nn.Sequential(nn.Linear(4, 9), nn.Dropout(0.4), nn.Linear(9, 9), nn.Dropout(0.4)),
        images(5, 4),
    ),
    "channels": lambda: (
        nn.Sequential(nn.Conv2d(2, 9, 3), nn.Dropout2d(0.4)),
        images(3, 2, 4, 4),
    ),
    "gru": lambda: (nn.GRU(3, 4, num_layers=3, dropout=0.4, bidirectional=True), images(5, 2, 3)),
    "lstm": lambda: (nn.LSTM(3, 4, num_layers=2, dropout=0.4, batch_first=True), images(5, 2, 3)),
    "attention": lambda: (attends()(dropout=0.4), images(5, 3, 8)),
    "attention-no-weights": lambda: (
        attends(need_weights=False)(dropout=0.4, batch_first=True),
        lambda: (numbers(3, 5, 8), causal(5), padding(3, 5)),
    ),
    "encoder": lambda: (
        nn.TransformerEncoder(encoder_layer(0.4), 2, enable_nested_tensor=False),
        images(5, 3, 8),
    ),
    "own-attention": lambda: (
        type("Own", (nn.MultiheadAttention,), {})(8, 2, dropout=0.4),
        lambda: memory(7, 8, 8),
    ),
    "functions": lambda: (
        Applied(lambda x: F.dropout(F.dropout(x, 0.4), p=0.4), nn.Linear(4, 9)),
        images(5, 4),
    ),
    "functions-torch": lambda: (Applied(lambda x: torch.dropout(x, 0.4, True)), images(5, 4)),
    "functions-channels": lambda: (
        Applied(lambda x: F.dropout2d(F.dropout3d(x[:, :, None], 0.4)[:, :, 0], 0.4)),
        images(5, 4, 3, 3),
    ),
    "functions-attention": lambda: (
        Applied(lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.4, is_causal=True)),
        lambda: three(2, 3, 5, 4),
    ),
}


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("name", DROPPING)
def test_one_client_alone_drops_the_same_units(name: str, trace: bool) -> None:
    model, inputs = DROPPING[name]()
    compare(model, inputs, Case(0, 0), trace=trace, alone=with_keyed_dropout(model.double()))


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_depends_on_the_key_and_on_nothing_else(name: str) -> None:
    model, inputs = DROPPING[name]()
    net, x = with_keyed_dropout(model.double()), inputs()

    def outputs(key: int) -> Tensor:
        torch.rand(1)  # PyTorch's own stream moves on
        return called(net, {}, x, torch.tensor(key))[0]

    assert outputs(1).equal(outputs(1))
    assert not outputs(1).equal(outputs(2))
    net.eval()
    if not name.startswith("functions"):  # they say for themselves when to drop
        expected = flat(model.eval()(*x))[0]
        torch.testing.assert_close(outputs(1), expected, rtol=EXACT, atol=EXACT)


def test_dropout_between_recurrent_layers_drops_as_many_as_it_says() -> None:
    net = with_keyed_dropout(nn.GRU(3, 500, num_layers=2, dropout=0.25).double())
    net.weight_ih_l1.data.zero_()
    seen = []
    net.keyed.register_forward_hook(lambda _, given, out: seen.append((given[0], out)))
    called(net, {}, (numbers(6, 7, 3),), torch.tensor(3))
    ((given, out),) = seen
    assert abs((out == 0).double().mean() - 0.25) < 0.02
    kept = out != 0
    torch.testing.assert_close(out[kept], given[kept] / 0.75)


def test_a_function_called_twice_drops_other_units() -> None:
    x = torch.ones(1000)
    with Functions(torch.tensor(5)) as functions:
        first, second = F.dropout(x), F.dropout(x, 0.5, True, False)
        assert F.dropout(x, 0.5, False) is x
        same = x.clone()
        F.dropout(same, inplace=True)
    assert functions.uses == 3
    assert not first.equal(second)
    assert not same.equal(second)
    assert set(same.tolist()) == {0.0, 2.0}


def test_without_a_key_functions_draw_from_pytorch() -> None:
    x = torch.ones(1000)
    torch.manual_seed(1)
    expected = F.dropout(x)
    torch.manual_seed(1)
    with Functions():
        assert F.dropout(x).equal(expected)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_in_low_precision_stays_low(name: str) -> None:
    check_low(*ATTENTION[name]())


def test_who_may_look_at_nothing_gets_zeros_and_no_nan() -> None:
    query, key, value = (x.requires_grad_() for x in three(2, 1, 3, 4))
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    with Functions(torch.tensor(1)):
        outputs = F.scaled_dot_product_attention(query, key, value, mask, dropout_p=0.1)
    assert outputs[:, :, 1].eq(0).all()
    for grad in torch.autograd.grad(outputs.sum(), [query, key, value]):
        assert grad.isfinite().all()
