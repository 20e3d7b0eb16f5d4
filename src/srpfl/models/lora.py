"""Low-rank adapters (Hu et al., 2021): a pretrained layer stays as it is, and beside it a product
of two thin matrices is trained: W·x + (α/r)·B·A·x.

What is pretrained is frozen, so it belongs to nobody: it is not sent, averaged, saved or charged to
the clock, and it is in memory once for all clients. Which adapters are shared and which are
personal is a predicate on names, as for every other parameter (:class:`Adapters`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from srpfl.core.backbone import copied
from srpfl.core.split import Personal, last_linear, predicate
from srpfl.errors import ConfigError

Targets = str | Sequence[str] | Callable[[str], bool]
# Ours is `query.lora_A.NAME`, that of PEFT `query.lora_A.NAME.weight`.
ADAPTER = re.compile(r"(?:^|\.)lora_[A-Za-z_]+\.([^.]+)")


class LoraLinear(nn.Linear):
    """A frozen linear layer with adapters beside it, by name. The layer's own names stay."""

    lora_A: nn.ParameterDict  # rank x inputs
    lora_B: nn.ParameterDict  # outputs x rank, zeros at first: then nothing changes
    scales: dict[str, float]

    def forward(self, input: Tensor) -> Tensor:
        outputs = F.linear(input, self.weight, self.bias)
        for name, scale in self.scales.items():
            low = F.linear(input, self.lora_A[name]) * scale
            outputs = outputs + F.linear(low, self.lora_B[name])
        return outputs

    def add(self, name: str, rank: int, scale: float) -> None:
        self.lora_A[name] = nn.Parameter(self.weight.new_empty(rank, self.in_features))
        self.lora_B[name] = nn.Parameter(self.weight.new_zeros(self.out_features, rank))
        self.scales = {**self.scales, name: scale}
        self._start(name)

    def reset_parameters(self) -> None:
        """What is pretrained stays; adapters begin afresh."""
        for name in getattr(self, "scales", {}):
            self._start(name)

    def _start(self, name: str) -> None:
        nn.init.kaiming_uniform_(self.lora_A[name], a=math.sqrt(5))
        nn.init.zeros_(self.lora_B[name])

    def change(self) -> Tensor:
        """What the adapters add to the weights."""
        return sum(
            (
                scale * (self.lora_B[name] @ self.lora_A[name])
                for name, scale in self.scales.items()
            ),
            torch.zeros_like(self.weight),
        )


@dataclass(frozen=True)
class Adapters:
    """The predicate of adapters: of all, or of those with one name, and of what else is named.

    ``personal=["classifier"]`` makes the head personal and shares the adapters;
    ``personal=Adapters()`` the other way round; with two adapters, ``Adapters("own")`` keeps one of
    them. Adapters of PEFT are recognised as well.

    >>> own = Adapters("own", also=("head",))
    >>> [own(name) for name in ("query.lora_A.own", "query.lora_A.shared", "head.bias")]
    [True, False, True]
    >>> Adapters()("base_model.model.query.lora_B.default.weight")
    True
    """

    name: str | None = None
    also: tuple[str, ...] = ()

    def __call__(self, key: str) -> bool:
        found = ADAPTER.search(key)
        if found is not None:
            return self.name is None or found[1] == self.name
        return any(key == part or key.startswith(f"{part}.") for part in self.also)


def lora(
    module: nn.Module,
    *,
    rank: int = 8,
    targets: Targets | None = None,
    head: Personal | None = "head",
    alpha: float | None = None,
    name: str = "default",
) -> nn.Module:
    """A copy of the module with adapters on its linear layers, and all else frozen but its head.

    ``targets`` says which layers: names as they stand in the module (``"query"``, ``"layer.5"``),
    or a function of a layer's full name; all but the head by default. The head is the last linear
    layer or what is named (None: there is none). α is twice the rank by default. A second adapter
    of another name may be added to the first. The frozen weights are the module's own, not copies.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> adapted = lora(net, rank=2)
    >>> [name for name, value in adapted.named_parameters() if value.requires_grad]
    ['0.lora_A.default', '0.lora_B.default', '2.weight', '2.bias']
    >>> x = torch.randn(5, 4)
    >>> torch.equal(adapted(x), net(x))
    True
    """
    if rank < 1:
        raise ConfigError(f"the rank of adapters must be at least 1, not {rank}")
    if not name.isidentifier():
        raise ConfigError(f"an adapter's name must be a word without dots, not '{name}'")
    is_head = predicate(module, _heads(module, head))
    chosen = _chosen(module, targets, is_head)
    taken = [n for n, m in module.named_modules() if isinstance(m, LoraLinear) and name in m.scales]
    if taken:
        raise ConfigError(f"'{taken[0]}' has an adapter '{name}' already: give this one a name")
    adapter = Adapters()
    made = copied(module, still=lambda key: not (is_head(key) or adapter(key)))
    for key, value in made.named_parameters(remove_duplicate=False):
        if is_head(key) or adapter(key):
            value.requires_grad_(True)
    for place in chosen:
        layer = made.get_submodule(place)
        if type(layer) is nn.Linear:
            layer.__class__ = LoraLinear
            layer.lora_A, layer.lora_B = nn.ParameterDict(), nn.ParameterDict()
            layer.scales = {}  # type: ignore[assignment]
        assert isinstance(layer, LoraLinear)
        if name not in layer.scales:  # a layer may stand at several places
            layer.add(name, rank, (2 * rank if alpha is None else alpha) / rank)
    for part in made.modules():
        if isinstance(part, nn.TransformerEncoderLayer):
            # Its "fast path" reads the weights of its layers and would pass the adapters by.
            part.activation_relu_or_gelu = 0
    return made


def merged(module: nn.Module) -> nn.Module:
    """A copy with the adapters added to the weights: plain linear layers again.

    >>> net = lora(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), rank=2)
    >>> _ = nn.init.normal_(net[0].lora_B["default"])
    >>> plain, x = merged(net), torch.randn(5, 4)
    >>> type(plain[0]).__name__, torch.allclose(plain(x), net(x), atol=1e-5)
    ('Linear', True)
    """
    made = copied(module)
    for layer in made.modules():
        if isinstance(layer, LoraLinear):
            with torch.no_grad():
                weight = nn.Parameter(layer.weight + layer.change(), requires_grad=False)
            layer.weight = weight
            del layer.lora_A, layer.lora_B, layer.scales
            layer.__class__ = nn.Linear  # type: ignore[assignment]
    return made


def _heads(module: nn.Module, head: Personal | None) -> Personal:
    if head is None:
        return lambda _name: False
    if head == "head" and not any(isinstance(m, nn.Linear) for m in module.modules()):
        last_linear(module)  # says what to do
    return head


def _chosen(
    module: nn.Module, targets: Targets | None, is_head: Callable[[str], bool]
) -> list[str]:
    """The layers that get adapters."""
    inside = {
        f"{place}." if place else ""
        for place, part in module.named_modules()
        if isinstance(part, nn.MultiheadAttention)
    }
    layers = [n for n, m in module.named_modules() if n and type(m) in (nn.Linear, LoraLinear)]
    layers = [place for place in layers if not is_head(f"{place}.weight")]
    if targets is None:
        found = layers
    elif callable(targets):
        found = [place for place in layers if targets(place)]
    else:
        names = [targets] if isinstance(targets, str) else list(targets)
        for wanted in names:
            packed = [p for p in inside if _stands(wanted, f"{p}in_proj_weight")]
            if packed and not any(_stands(wanted, place) for place in layers):
                raise ConfigError(
                    f"'{packed[0][:-1]}' is an nn.MultiheadAttention, which keeps its projections "
                    "in one tensor: adapt the linear layers around it, or use a model whose "
                    "queries, keys and values are linear layers"
                )
            if not any(_stands(wanted, place) for place in layers):
                there = sorted({place.rpartition(".")[2] for place in layers})
                raise ConfigError(
                    f"no linear layer outside of the head is named '{wanted}' (there are: "
                    f"{', '.join(there[:20]) or 'none'})"
                )
        found = [place for place in layers if any(_stands(wanted, place) for wanted in names)]
    if not found:
        raise ConfigError("no linear layer is left to adapt: name some of them as targets")
    return found


def _stands(name: str, place: str) -> bool:
    """Whether a name stands in a path, whole."""
    return f".{name}." in f".{place}."
