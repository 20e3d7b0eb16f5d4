"""A frozen backbone stays on each side's own disk: it does not travel, and must be the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Message
from torch import nn

import srpfl
import tiny
from flower.federation import Federation
from srpfl.flower import client_app, share_of
from srpfl.models import Adapters, lora


def adapted(seed: int = 0, numbers: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(seed)
    backbone = srpfl.models.MLP(4, (8, 5), classes=3)
    return lora(backbone.to(numbers), rank=2)


@pytest.mark.parametrize("numbers", [torch.float32, torch.bfloat16])
def test_only_what_is_shared_and_trained_is_on_the_wire(
    numbers: torch.dtype, tmp_path: Path
) -> None:
    seen: list[set[str]] = []
    model = adapted(numbers=numbers)
    federation = Federation(tmp_path, model=model, algorithm=srpfl.FedRep(head_epochs=1))
    for client in range(3):
        node = federation.of(client)

        def noting(message: Message, context: object, app: object = node.app) -> Message:
            reply: Message = app(message, context)  # type: ignore[operator]
            for content in (message.content, reply.content):
                seen.extend(set(record) for record in content.array_records.values())
                for record in content.array_records.values():
                    assert {array.dtype for array in record.values()} == {"float32"}
            return reply

        node.app = noting  # type: ignore[assignment]
    run = federation.serve()
    assert len(run.rounds) == 3
    assert seen
    assert all(names and all(map(Adapters(), names)) for names in seen)
    assert run.state is not None
    assert run.state.shared.keys() == seen[0]


@pytest.mark.parametrize("other", [adapted(seed=1), adapted(numbers=torch.bfloat16)])
def test_a_node_with_another_backbone_refuses_to_train(other: nn.Module, tmp_path: Path) -> None:
    federation = Federation(tmp_path, model=adapted(), participation=srpfl.FirstN(n=2))
    experiment = replace(federation.experiment, model=other)
    federation.of(0).app = client_app(experiment, lambda context: share_of(tiny.data(), 0))
    run = federation.serve()
    assert all(set(record.participants) == {1, 2} for record in run.rounds)
    [refused, *_] = federation.events("refused")
    assert "its frozen weights are not the server's" in str(refused)
