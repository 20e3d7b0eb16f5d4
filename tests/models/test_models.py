"""Every network: it learns from every weight, its head is linear and last, samples do not mix."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from srpfl.core.split import last_linear
from srpfl.errors import ConfigError
from srpfl.models import (
    MLP,
    VGG,
    CharGRU,
    CharTransformer,
    ConvNet1d,
    LeNet5,
    MobileNet,
    ResNet,
)


def tokens() -> Tensor:
    return torch.randint(0, 74, (4, 20))


def images() -> Tensor:
    return torch.randn(4, 3, 32, 32)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], tuple[int, ...]]] = {
    "gru": (lambda: CharGRU(74), tokens, (4, 20, 74)),
    "transformer": (lambda: CharTransformer(74), tokens, (4, 20, 74)),
    "conv1d": (ConvNet1d, lambda: torch.randn(4, 9, 128), (4, 6)),
    "resnet20": (lambda: ResNet(20, classes=7), images, (4, 7)),
    "resnet20-batch": (lambda: ResNet(20, classes=7, norm="batch"), images, (4, 7)),
    "resnet18": (lambda: ResNet(18, classes=7), images, (4, 7)),
    "vgg": (lambda: VGG(classes=7), images, (4, 7)),
    "mobilenet": (lambda: MobileNet(classes=7), images, (4, 7)),
    "mobilenet-batch": (lambda: MobileNet(classes=7, norm="batch"), images, (4, 7)),
}
EVERY = pytest.mark.parametrize(("build", "inputs", "shape"), MODELS.values(), ids=MODELS)


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    torch.manual_seed(0)


@EVERY
def test_all_weights_get_a_gradient(
    build: Callable[[], nn.Module], inputs: Callable[[], Tensor], shape: tuple[int, ...]
) -> None:
    model = build()
    out = model(inputs())
    assert out.shape == shape
    targets = torch.zeros(out.shape[:-1], dtype=torch.long)
    F.cross_entropy(out.flatten(0, -2), targets.flatten()).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name


@EVERY
def test_the_head_is_the_last_linear_layer(
    build: Callable[[], nn.Module], inputs: Callable[[], Tensor], shape: tuple[int, ...]
) -> None:
    model = build()
    assert last_linear(model) == ["head"]
    model.head.register_forward_hook(lambda module, given, out: setattr(model, "seen", out))
    assert model(inputs()) is model.seen
    assert model.head.out_features == shape[-1]


@EVERY
def test_a_sample_does_not_depend_on_the_others_when_evaluated(
    build: Callable[[], nn.Module], inputs: Callable[[], Tensor], shape: tuple[int, ...]
) -> None:
    model, x = build().eval(), inputs()
    # Convolutions of another batch size may add in another order.
    torch.testing.assert_close(model(x)[1:2], model(x[1:2]), rtol=1e-4, atol=1e-5)


@EVERY
def test_weights_are_drawn_anew_by_resetting_the_parts(
    build: Callable[[], nn.Module], inputs: Callable[[], Tensor], shape: tuple[int, ...]
) -> None:
    """As a run does with a model that it was given: nothing of the old weights may stay."""
    model = build()
    for weight in model.parameters():
        nn.init.constant_(weight, 7.0)
    for module in model.modules():
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
    assert not any((weight == 7.0).any() for weight in model.parameters())


@pytest.mark.parametrize("build", [lambda: CharGRU(74), lambda: CharTransformer(74)])
def test_the_future_is_not_seen(build: Callable[[], nn.Module]) -> None:
    model, x = build().eval(), tokens()
    other = x.clone()
    other[:, 10:] = (x[:, 10:] + 1) % 74
    before, after = model(x), model(other)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert (before[:, 10] - after[:, 10]).abs().max() > 1e-3


def test_attention_is_pytorchs_own() -> None:
    """The written-out attention against scaled_dot_product_attention."""
    from srpfl.models.char_transformer import Block

    block, x = Block(16, 4, 0.0), torch.randn(2, 9, 16)
    q, k, v = block.qkv(block.norm1(x)).chunk(3, dim=-1)
    heads = [part.unflatten(-1, (4, 4)).transpose(1, 2) for part in (q, k, v)]
    seen = F.scaled_dot_product_attention(*heads, is_causal=True)
    middle = x + block.out(seen.transpose(1, 2).flatten(2))
    expected = middle + block.down(F.gelu(block.up(block.norm2(middle))))
    torch.testing.assert_close(block(x), expected)


def test_places_matter_to_the_transformer() -> None:
    model = CharTransformer(74, layers=1).eval()
    out = model(torch.full((1, 8), 3))
    assert (out[0, 0] - out[0, 7]).abs().max() > 1e-3


@pytest.mark.parametrize(("depth", "weights"), [(20, 272_474), (18, 11_173_962)])
def test_the_published_sizes(depth: int, weights: int) -> None:
    model = ResNet(depth, classes=10)
    assert sum(weight.numel() for weight in model.parameters()) == weights
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(layers) + 1 == depth


@pytest.mark.parametrize("kind", [ResNet, MobileNet])
@pytest.mark.parametrize(("norm", "layer"), [("group", nn.GroupNorm), ("batch", nn.BatchNorm2d)])
def test_one_kind_of_norm(kind: Callable[..., nn.Module], norm: str, layer: type) -> None:
    found = {type(m) for m in kind(classes=3, norm=norm).modules()}
    assert found & {nn.GroupNorm, nn.BatchNorm2d} == {layer}


@pytest.mark.parametrize("kind", [ResNet, VGG, MobileNet, LeNet5])
def test_grey_images(kind: Callable[..., nn.Module]) -> None:
    assert kind(classes=5, channels=1)(torch.zeros(2, 1, 32, 32)).shape == (2, 5)


def test_one_output_for_regression() -> None:
    assert MLP(28, (16,), classes=1)(torch.zeros(3, 28)).shape == (3, 1)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: ResNet(34, classes=3), "unknown depth of ResNet '34'"),
        (lambda: ResNet(20, classes=3, norm="layer"), "unknown norm 'layer'"),
        (lambda: CharTransformer(74, width=30), "a width of 30 cannot be divided among 4 heads"),
    ],
)
def test_impossible_models(build: Callable[[], nn.Module], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build()
