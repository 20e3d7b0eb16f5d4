"""A node that answers with anything but an answer: random records, arrays, metrics and sizes."""

from __future__ import annotations

import random
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

NAMES = ["answer", "sent", "assignment", "", "a" * 5000, "\x1b[2J", "\n", "sent\0", "ünder", "loss"]
HEADERS = [
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n",
    b"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n",
    b"{'descr': [('a', '<f4')], 'fortran_order': True, 'shape': (), }\n",
    b"{" * 900,
    b"__import__('os').abort()",
]


class Hostile:
    """Mangles every answer of a node in another way; ``records`` counts what it has sent."""

    def __init__(self, seed: int, *, each: int = 30) -> None:
        self.random, self.each, self.records = random.Random(seed), each, 0

    def __call__(self, reply: Message) -> Message:
        roll = self.random.random()
        if reply.metadata.message_type == "query.hello" and self.records:
            return reply
        if roll < 0.1:
            return Message(Error(self.random.randrange(1, 9), self.text()), reply_to=reply)
        content = reply.content if roll < 0.6 else RecordDict()
        for _ in range(self.each):
            self.records += 1
            content[self.random.choice(NAMES)] = self.record()
        if roll < 0.5:
            self.twist(content)
        reply.content = content
        return reply

    def twist(self, content: RecordDict) -> None:
        """Something that looks like an answer, but for one thing."""
        values: dict[str, Any] = {"status": "done", "client": 3, "round": 0, "loss": 0.5}
        values |= {"samples": 20, "global/sums": [3.0], "global/weight": 5.0}
        values |= {"personalised/sums": [4.6e18], "personalised/weight": 4.6e18}
        values[self.random.choice(list(values))] = self.value()
        content["answer"] = ConfigRecord(values)

    def record(self) -> Any:
        make = self.random.choice([self.config, self.metrics, self.arrays, self.arrays])
        return make()

    def config(self) -> ConfigRecord:
        return ConfigRecord({self.text() or "x": self.value() for _ in range(3)})

    def metrics(self) -> MetricRecord:
        return MetricRecord({"loss": self.random.choice([1, 2.5, float("inf"), [1.0], [2]])})

    def arrays(self) -> ArrayRecord:
        names = ["layers.0.weight", "layers.0.bias", self.text() or "x"]
        return ArrayRecord({name: self.array() for name in names})

    def array(self) -> Array:
        header = self.random.choice(HEADERS)
        begin = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        packed = BytesIO()
        np.savez_compressed(packed, a=np.zeros(100_000))
        data = self.random.choice(
            [
                begin,
                begin + b"\0" * 40,
                b"\x93NUMPY\xff\xff\xff\xff\xff\xff",
                b"PK\x03\x04" + self.random.randbytes(60),
                packed.getvalue(),
                self.random.randbytes(self.random.randrange(300)),
                b"",
            ]
        )
        kind = self.random.choice(["numpy.ndarray", "pickle", "", "torch"])
        shape = self.random.choice([(), (3,), (1 << 62, 1 << 62), (-5,), (0,)])
        return Array(self.random.choice(["float32", "object", "no type"]), shape, kind, data)

    def value(self) -> Any:
        return self.random.choice(
            [
                *(0, 1, -1, 1 << 62, -(1 << 63), 0.0, -0.0, 1e308, -1e31, 4.6e18),
                *(float("nan"), float("inf"), True, False, "", self.text(), b"\xff" * 50),
                *([], [1.0] * 5000, ["a"], [float("nan")], [1, 2, 3]),
            ]
        )

    def text(self) -> str:
        return "".join(map(chr, self.random.choices([*range(0x20), 0x1B, 0x202E, 0x41, 0x7F], k=9)))
