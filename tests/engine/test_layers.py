"""A layer under ``torch.vmap`` does for each client what PyTorch's own does for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from srpfl.engine.products import linear
from srpfl.engine.threads import one_thread

from .alone import (
    CASES,
    CLIENTS,
    Applied,
    Case,
    Made,
    check_low,
    compare,
    conv_then,
    ids,
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


LAYERS: dict[str, Callable[[], Made]] = {
    "linear": lambda: (nn.Linear(4, 3), images(5, 4)),
    "linear-no-bias-3d": lambda: (nn.Linear(4, 3, bias=False), images(5, 2, 4)),
    "linear-alone": lambda: (nn.Linear(4, 3), images(4)),
    "conv1d": lambda: (nn.Conv1d(4, 6, 3), images(5, 4, 7)),
    "conv1d-strided": lambda: (nn.Conv1d(4, 6, 3, stride=2, padding=1), images(5, 4, 7)),
    "conv1d-circular": lambda: (
        nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular"),
        images(5, 4, 7),
    ),
    "conv2d": lambda: (nn.Conv2d(2, 6, 3, bias=False), images(5, 2, 6, 6)),
    "conv2d-alone": lambda: (nn.Conv2d(2, 6, 3), images(2, 6, 6)),
    "conv2d-same": lambda: (nn.Conv2d(2, 6, (5, 3), padding="same"), images(5, 2, 6, 6)),
    "conv2d-depthwise": lambda: (nn.Conv2d(4, 8, 3, groups=4), images(5, 4, 6, 6)),
    "conv2d-grouped": lambda: (nn.Conv2d(4, 6, 3, groups=2), images(5, 4, 6, 6)),
    "conv2d-dilated": lambda: (nn.Conv2d(2, 4, 3, dilation=2, stride=2), images(5, 2, 9, 9)),
    "conv2d-reflect": lambda: (
        nn.Conv2d(2, 4, 3, padding=(1, 2), padding_mode="reflect"),
        images(5, 2, 6, 6),
    ),
    "conv2d-twice": lambda: (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3)),
        images(3, 2, 6, 6),
    ),
    "conv1d-pointwise": lambda: (nn.Conv1d(4, 6, 1), images(5, 4, 7)),
    "conv2d-pointwise": lambda: (nn.Conv2d(4, 6, 1, bias=False), images(5, 4, 6, 6)),
    "conv2d-pointwise-strided": lambda: (nn.Conv2d(4, 6, 1, stride=(2, 1)), images(5, 4, 7, 6)),
    "conv2d-pointwise-alone": lambda: (nn.Conv2d(4, 6, 1), images(4, 6, 6)),
    "conv2d-pointwise-padded": lambda: (nn.Conv2d(4, 6, 1, padding=1), images(5, 4, 6, 6)),
    "conv3d-pointwise": lambda: (nn.Conv3d(2, 4, 1), images(2, 2, 5, 5, 5)),
    "conv3d": lambda: (nn.Conv3d(2, 4, 3), images(2, 2, 5, 5, 5)),
    "conv3d-replicate": lambda: (
        nn.Conv3d(2, 4, 3, padding=1, padding_mode="replicate"),
        images(2, 2, 4, 4, 4),
    ),
    "conv-transpose1d": lambda: (nn.ConvTranspose1d(4, 6, 3, stride=2), images(5, 4, 6)),
    "conv-transpose2d": lambda: (
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        images(5, 4, 5, 5),
    ),
    "conv-transpose3d": lambda: (nn.ConvTranspose3d(2, 3, 2), images(2, 2, 3, 3, 3)),
    "group-norm": lambda: (nn.GroupNorm(2, 4), images(5, 4, 3, 3)),
    "group-norm-rows": lambda: (nn.GroupNorm(2, 4), images(5, 4)),
    "group-norm-after-conv": lambda: (conv_then(nn.GroupNorm(2, 4)), images(5, 2, 5, 5)),
    "group-norm-plain": lambda: (conv_then(nn.GroupNorm(4, 4, affine=False)), images(5, 2, 5, 5)),
    "instance-norm1d": lambda: (nn.InstanceNorm1d(4, affine=True), images(5, 4, 6)),
    "instance-norm1d-alone": lambda: (nn.InstanceNorm1d(4), images(4, 6)),
    "instance-norm2d": lambda: (conv_then(nn.InstanceNorm2d(4, affine=True)), images(5, 2, 5, 5)),
    "instance-norm3d": lambda: (nn.InstanceNorm3d(2), images(2, 2, 3, 3, 3)),
    "layer-norm": lambda: (nn.LayerNorm(4), images(5, 3, 4)),
    "rms-norm": lambda: (nn.RMSNorm(4), images(5, 3, 4)),
    "max-pool": lambda: (conv_then(nn.MaxPool2d(2)), images(5, 2, 6, 6)),
    "max-pool1d": lambda: (nn.MaxPool1d(2), images(5, 2, 6)),
    "adaptive-pool": lambda: (conv_then(nn.AdaptiveAvgPool2d(2)), images(5, 2, 7, 7)),
    "average-pool": lambda: (conv_then(nn.AvgPool2d(2)), images(5, 2, 6, 6)),
    "prelu": lambda: (nn.PReLU(4), images(5, 4, 3)),
    "upsample": lambda: (conv_then(nn.Upsample(scale_factor=2)), images(2, 2, 4, 4)),
    "in-place": lambda: (
        nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(inplace=True), nn.Linear(4, 4), nn.SELU(True)),
        images(5, 4),
    ),
    "embedding": lambda: (nn.Embedding(7, 4), lambda: (ids(5, 3),)),
    "embedding-padding": lambda: (nn.Embedding(7, 4, padding_idx=-7), lambda: (ids(5, 9),)),
    "bag-mean": lambda: (nn.EmbeddingBag(7, 4, padding_idx=2), lambda: (ids(5, 4),)),
    "bag-max": lambda: (nn.EmbeddingBag(7, 4, mode="max"), lambda: (ids(5, 4),)),
    "bag-empty": lambda: (
        nn.EmbeddingBag(7, 4, mode="max", padding_idx=2),
        lambda: (torch.tensor([[2, 2], [2, 3]]),),
    ),
    "gru": lambda: (nn.GRU(3, 4), images(5, 2, 3)),
    "gru-batch-first": lambda: (nn.GRU(3, 4, batch_first=True), images(2, 5, 3)),
    "gru-no-bias": lambda: (nn.GRU(3, 4, bias=False), images(5, 2, 3)),
    "gru-state": lambda: (
        nn.GRU(3, 4, num_layers=2, bidirectional=True),
        lambda: (numbers(5, 2, 3), numbers(4, 2, 4)),
    ),
    "gru-alone": lambda: (nn.GRU(3, 4, batch_first=True), lambda: (numbers(5, 3), numbers(1, 4))),
    "gru-one-step": lambda: (nn.GRU(3, 4), images(1, 2, 3)),
    "lstm": lambda: (nn.LSTM(3, 4, num_layers=2, batch_first=True), images(2, 5, 3)),
    "lstm-no-bias-both-ways": lambda: (
        nn.LSTM(3, 4, bias=False, bidirectional=True),
        images(5, 2, 3),
    ),
    "lstm-state": lambda: (
        WithState(nn.LSTM(3, 4)),
        lambda: (numbers(5, 2, 3), numbers(1, 2, 4), numbers(1, 2, 4)),
    ),
    "rnn": lambda: (nn.RNN(3, 4, num_layers=2), images(5, 2, 3)),
    "rnn-relu": lambda: (nn.RNN(3, 4, nonlinearity="relu", bidirectional=True), images(5, 2, 3)),
    "gru-cell": lambda: (nn.GRUCell(3, 4), lambda: (numbers(2, 3), numbers(2, 4))),
    "gru-cell-alone": lambda: (nn.GRUCell(3, 4, bias=False), images(3)),
    "lstm-cell": lambda: (nn.LSTMCell(3, 4), images(2, 3)),
    "lstm-cell-state": lambda: (
        WithState(nn.LSTMCell(3, 4)),
        lambda: (numbers(2, 3), numbers(2, 4), numbers(2, 4)),
    ),
    "rnn-cell": lambda: (nn.RNNCell(3, 4), images(2, 3)),
    "tied": lambda: (Tied(), lambda: (ids(5, 3),)),
    "twice": lambda: (Twice(), images(5, 4)),
    "views": lambda: (
        Applied(lambda x: x.view(x.size(0), -1).view_as(x.reshape(len(x), -1)), nn.Conv2d(2, 4, 3)),
        images(5, 2, 5, 5),
    ),
    "functional": lambda: (Functional(), images(5, 2, 5, 5)),
}


class WithState(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Any:
        return self.layer(x, (h, c))


class Tied(nn.Module):
    """One tensor under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Any:
        return self.out(torch.tanh(self.embedding(x)))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> Any:
        return self.norm(self.layer(self.norm(self.layer(x)).relu_()))


class Functional(nn.Module):
    """Parameters without layers."""

    def __init__(self) -> None:
        super().__init__()
        self.filters, self.scale = nn.Parameter(numbers(4, 2, 3, 3)), nn.Parameter(numbers(4))
        self.weight = nn.Parameter(numbers(6, 4))

    def forward(self, x: Tensor) -> Any:
        x = F.group_norm(F.conv2d(x, self.filters, padding=1), 2, weight=self.scale)
        return F.linear(x.mean((2, 3)), self.weight)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", LAYERS)
def test_a_stack_gives_each_client_its_own_numbers(name: str, case: Case) -> None:
    if name == "prelu" and case.inputs_at is None:
        pytest.skip("PyTorch's own rule warns of how it makes room for outputs")
    compare(*LAYERS[name](), case)


@pytest.mark.parametrize("case", CASES[::3])
@pytest.mark.parametrize("name", LAYERS)
def test_a_traced_stack_gives_the_same(name: str, case: Case) -> None:
    compare(*LAYERS[name](), case, trace=True)


LOW = ["linear", "conv2d", "conv1d", "conv3d", "group-norm-after-conv", "instance-norm2d"]
LOW += ["embedding-padding", "gru", "lstm", "rnn", "gru-cell", "lstm-cell", "bag-mean"]


@pytest.mark.parametrize("name", LOW)
def test_low_precision_stays_low(name: str) -> None:
    model, inputs = LAYERS[name]()
    check_low(model, inputs)


def test_an_id_beyond_the_table_is_refused_and_reads_nobody_elses() -> None:
    net = prepared(nn.Embedding(7, 4))
    weight = torch.randn(CLIENTS, 7, 4)
    for beyond in (torch.tensor([7]), torch.tensor([-1])):
        with pytest.raises(IndexError):
            torch.vmap(lambda w, x: functional_call(net, {"weight": w}, (x,)), in_dims=(0, None))(
                weight, beyond
            )


def test_layers_with_states_of_another_size_are_left_alone() -> None:
    model = nn.LSTM(3, 4, proj_size=2)
    assert type(prepared(model)) is nn.LSTM
    packed = nn.utils.rnn.pack_sequence([torch.randn(4, 3), torch.randn(2, 3)])
    net, plain = nn.GRU(3, 4), nn.GRU(3, 4)
    plain.load_state_dict(net.state_dict())
    assert prepared(net)(packed)[1].equal(plain(packed)[1])


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_what_goes_into_a_frozen_layer_is_not_kept(own: bool, frozen: bool) -> None:
    """Over a frozen backbone this is most of a step's memory."""
    x = torch.randn(3, 5, 4, requires_grad=True)
    weight = torch.randn(3, 6, 4) if own else torch.randn(6, 4)
    weight.requires_grad_(not frozen)
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = torch.vmap(linear, in_dims=(0, 0 if own else None))(x, weight)
    assert (x.numel() in kept) != frozen
    [found] = torch.autograd.grad(outputs.square().sum(), x)
    [plain] = torch.autograd.grad((x @ weight.mT).square().sum(), x)
    assert torch.allclose(found, plain, atol=1e-5)
