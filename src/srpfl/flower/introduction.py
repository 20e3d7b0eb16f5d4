"""What a node says of itself when it is asked who it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srpfl.algorithms.base import Algorithm, expected_reply
from srpfl.algorithms.summed import Secure
from srpfl.core.backbone import hash_of
from srpfl.core.initial import initial_model
from srpfl.core.slots import packed
from srpfl.core.split import Split
from srpfl.data.base import Federated
from srpfl.flower.experiment import Experiment
from srpfl.flower.wire import PROTOCOL, VERSION, fingerprint


def introduction(
    experiment: Experiment, clients: Mapping[str, Federated], name: str
) -> dict[str, Any]:
    """The node's clients with the sizes of their data, and what must be alike on both sides."""
    model = experiment.algorithm.prepared(
        initial_model(experiment.model, experiment.seed, pretrained=experiment.pretrained)
    )
    return {
        "names": list(clients),
        "train": [len(data.train(0).y) for data in clients.values()],
        "test": [len(data.test(0).y) for data in clients.values()],
        "protocol": PROTOCOL,
        "version": VERSION,
        "model": agreed(experiment.algorithm, experiment.algorithm.split(model)),
        "node": name,
    }


def agreed(algorithm: Algorithm, parts: Split) -> str:
    """The fingerprint of all that travels, and of what does not, because each side has it: the
    values that nobody trains, and the terms of noise."""
    sent = packed(parts.shared, algorithm.sends(algorithm.server_state(parts)))
    travels = fingerprint(sent, expected_reply(algorithm, parts))
    terms = algorithm.hides.terms if isinstance(algorithm.hides, Secure) else ""
    fixed = hash_of(parts.fixed) if parts.fixed else ""
    return "/".join(filter(None, (travels, fixed, terms)))
