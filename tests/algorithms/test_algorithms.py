"""What a participant trains, and what the server makes of it, against exact references."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import srpfl
import tiny
from srpfl.core.means import weighted_mean
from srpfl.core.split import combine, partition, predicate, state_of
from srpfl.errors import ConfigError


def test_fedavg_with_one_client_and_one_step_is_plain_sgd() -> None:
    algorithm = srpfl.FedAvg(steps=1, batch_size=12, rule=srpfl.SGD(lr=0.1, weight_decay=0.0))
    _, _, [local] = tiny.train_once(algorithm)
    net = tiny.model()
    samples = tiny.data().train(0)
    loss = nn.functional.cross_entropy(
        net(torch.from_numpy(samples.x)), torch.from_numpy(samples.y)
    )
    loss.backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        # The batch is the same set in another order, so only rounding differs.
        torch.testing.assert_close(
            local.shared[name], parameter.detach() - 0.1 * parameter.grad, rtol=1e-5, atol=1e-7
        )


def test_a_round_of_identical_clients_returns_their_common_model() -> None:
    part = state_of(tiny.model())
    for count in (1, 3, 7, 100):
        assert tiny.same(weighted_mean([part] * count, [1.0] * count), part)


def test_the_mean_is_weighted_by_samples_on_request() -> None:
    parts = [{"a": torch.tensor([0.0])}, {"a": torch.tensor([3.0])}]
    assert float(weighted_mean(parts, [1, 1])["a"]) == 1.5
    assert float(weighted_mean(parts, [2, 1])["a"]) == 1.0


def test_integer_buffers_keep_their_type() -> None:
    parts = [{"n": torch.tensor(4)}, {"n": torch.tensor(4)}]
    assert weighted_mean(parts, [1, 1])["n"].dtype == torch.int64


def test_head_phase_leaves_the_body_alone_and_body_phase_the_head() -> None:
    shared, personal, [only_head] = tiny.train_once(srpfl.FedRep(head_epochs=3, body_epochs=0))
    assert tiny.same(only_head.shared, shared)
    assert not tiny.same(only_head.personal, personal)
    shared, personal, [only_body] = tiny.train_once(srpfl.FedRep(head_epochs=0, body_epochs=2))
    assert tiny.same(only_body.personal, personal)
    assert not tiny.same(only_body.shared, shared)


def test_fedrep_is_its_two_phases_one_after_the_other() -> None:
    both = srpfl.FedRep(head_epochs=2, body_epochs=1)
    shared, _, [result] = tiny.train_once(both)
    _, _, [head_only] = tiny.train_once(srpfl.FedRep(head_epochs=2, body_epochs=0))
    assert tiny.same(result.personal, head_only.personal)
    assert not tiny.same(result.shared, shared)


def test_frozen_batch_norm_keeps_its_statistics() -> None:
    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))

    shared, _, [head] = tiny.train_once(srpfl.FedRep(head_epochs=2, body_epochs=0), net=net())
    assert tiny.same(head.shared, shared)
    _, _, [body] = tiny.train_once(srpfl.FedRep(head_epochs=0, body_epochs=1), net=net())
    assert not torch.equal(body.shared["1.running_mean"], shared["1.running_mean"])


def test_fedbabu_never_trains_the_head_and_fedper_trains_both() -> None:
    shared, personal, [babu] = tiny.train_once(srpfl.FedBABU())
    assert tiny.same(babu.personal, personal)
    assert not tiny.same(babu.shared, shared)
    shared, personal, [per] = tiny.train_once(srpfl.FedPer())
    assert not tiny.same(per.personal, personal)
    assert not tiny.same(per.shared, shared)


def test_lg_fedavg_shares_the_last_two_linear_layers() -> None:
    net = tiny.model()
    shared, personal = partition(state_of(net), srpfl.LGFedAvg().is_personal(net))
    assert shared.keys() == {"fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"}
    assert personal.keys() == {"fc1.weight", "fc1.bias"}


def test_momentum_lives_through_the_phases_of_one_update() -> None:
    """Two phases on the same parameters are one longer phase: the optimiser is not restarted."""
    net = tiny.model()
    names = frozenset(name for name, _ in net.named_parameters())

    class Twice(srpfl.FedAvg):
        def phases(self, shared, personal):
            return tuple(srpfl.core.plan.Phase(names, steps=1) for _ in range(2))

    rule = srpfl.SGD(lr=0.1, momentum=0.9)
    _, _, [two] = tiny.train_once(Twice(rule=rule, batch_size=12))
    _, _, [one] = tiny.train_once(srpfl.FedAvg(steps=2, rule=rule, batch_size=12))
    for name in names:  # whole batches, in another order: rounding only
        torch.testing.assert_close(two.shared[name], one.shared[name], rtol=1e-4, atol=1e-6)


def test_dropout_depends_on_the_client_and_not_on_its_neighbours() -> None:
    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))

    *_, alone = tiny.train_once(srpfl.FedAvg(), clients=(3,), net=net())
    *_, among = tiny.train_once(srpfl.FedAvg(), clients=(5, 3, 1), net=net())
    assert tiny.same(alone[0].shared, among[1].shared)
    assert not tiny.same(among[0].shared, among[1].shared)


@pytest.mark.parametrize("personal", [lambda name: False, lambda name: True])
def test_a_split_into_nothing_or_everything_is_refused(personal) -> None:
    with pytest.raises(ConfigError, match="needs a shared and a personal part"):
        srpfl.FedRep(personal=personal).plans(tiny.model())


def test_any_module_can_be_split_by_a_predicate() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    run = tiny.simulate(model=net, algorithm=srpfl.FedRep(personal=lambda n: n.startswith("2.")))
    assert run.state.shared.keys() == {"0.weight", "0.bias"}
    whole = combine(run.state.shared, run.parts.of(0))
    assert whole.keys() == net.state_dict().keys()
    assert predicate(net, "2")("2.bias")
