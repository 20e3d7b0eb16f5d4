"""What travels: numbers, texts and arrays in Flower's records. Nothing is ever pickled."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from srpfl.split import Params

HELLO, TRAIN, EVALUATE, SETTLE = "query.hello", "train", "evaluate", "query.settle"


@dataclass(frozen=True)
class Task:
    """What the server asks of one client, beside the shared part."""

    experiment: str
    client: int  # its number, by which its random streams go
    round: int  # rounds finished before this one
    seed: int
    budget: float  # seconds after which an answer is useless
    counted: int  # the last round (from 1) in which this client's answer counted; 0: none
    wants_gradient: bool = False
    kinds: str = ""  # evaluations, separated by commas


def pack(params: Params) -> ArrayRecord:
    """Tensors as a record of arrays."""
    return ArrayRecord(
        {name: Array(value.detach().cpu().numpy()) for name, value in params.items()}
    )


def task_record(task: Task, shared: ArrayRecord | None = None) -> RecordDict:
    content: dict[str, Any] = {"task": ConfigRecord(asdict(task))}
    return RecordDict(content if shared is None else {**content, "shared": shared})


def read_task(content: RecordDict) -> Task:
    return Task(**content.config_records["task"])  # type: ignore[arg-type]


def read_shared(content: RecordDict, like: Params) -> Params:
    """The shared part that the server sent, held against the client's own model."""
    arrays = content.array_records["shared"]
    if {name: tuple(a.shape) for name, a in arrays.items()} != {
        name: tuple(value.shape) for name, value in like.items()
    }:
        raise ValueError("the server's shared part does not fit this client's model")
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()}


def answer_record(values: dict[str, Any], **arrays: Params) -> RecordDict:
    """An answer: some numbers and texts, and arrays by their part's name."""
    records: dict[str, Any] = {"answer": ConfigRecord(values)}
    return RecordDict({**records, **{name: pack(params) for name, params in arrays.items()}})
