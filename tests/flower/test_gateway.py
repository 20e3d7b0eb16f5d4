"""The door to a SuperLink: what nodes need passes, and nothing else reaches it."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from flwr.proto.fab_pb2 import Fab, GetFabResponse

from srpfl.errors import ConfigError
from srpfl.flower import signing
from srpfl.flower.gateway import CALLS, Door, Gateway

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


class Behind:
    """The SuperLink: it notes what comes through."""

    def __init__(self, answer: bytes = b"fine") -> None:
        self.calls: list[tuple[str, bytes, dict[str, str]]] = []
        self.answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.calls.append((request.url.path, request.content, dict(request.headers)))
        return httpx.Response(200, content=self.answer, headers={"flwr-x": "1", "server": "secret"})


def asked(door: Door, behind: Behind, method: str, path: str, **given: Any) -> httpx.Response:
    gateway = Gateway("https://127.0.0.1:8000", door)
    gateway.client = httpx.AsyncClient(
        base_url="http://superlink", transport=httpx.MockTransport(behind)
    )

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=gateway)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
            return await client.request(method, path, **given)

    return asyncio.run(ask())


@pytest.mark.parametrize("call", sorted(CALLS))
def test_what_a_node_needs_passes(call: str) -> None:
    behind = Behind()
    headers = {"flwr-public-key": "k", "authorization": "no", "cookie": "no"}
    answer = asked(Door(), behind, "POST", f"/v1/fleet/{call}", content=b"body", headers=headers)
    assert (answer.status_code, answer.content) == (200, b"fine")
    assert "server" not in answer.headers
    [(path, content, passed)] = behind.calls
    assert (path, content) == (f"/v1/fleet/{call}", b"body")
    assert passed["flwr-public-key"] == "k"
    assert not {"authorization", "cookie"} & passed.keys()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/control/start-run"),
        ("POST", "/v1/control/register-node"),
        ("POST", "/v1/control/stop-run"),
        ("POST", "/v1/runtime/acquire-task"),
        ("POST", "/v1/fleet/register-node"),
        ("POST", "/v1/fleet/../control/stop-run"),
        ("POST", "/v1/fleet/%2e%2e/control/stop-run"),
        ("POST", "//v1/control/stop-run"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("GET", "/v1/fleet/get-fab"),
        ("PUT", "/v1/fleet/push-object"),
    ],
)
def test_nothing_else_does(method: str, path: str) -> None:
    behind = Behind()
    assert asked(Door(), behind, method, path, content=b"").status_code == 404
    assert behind.calls == []


def test_what_is_too_large_is_not_passed_on() -> None:
    behind = Behind()
    answer = asked(Door(largest=10), behind, "POST", "/v1/fleet/push-object", content=b"x" * 11)
    assert answer.status_code == 413
    assert behind.calls == []


@pytest.fixture
def key(tmp_path: Path) -> Path:
    made = tmp_path / "app-key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made], check=True)
    return made


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's bundler
def test_a_signed_app_reaches_nodes_with_its_signature_and_they_accept_it(
    tmp_path: Path, key: Path
) -> None:
    import yaml
    from flwr.cli.build import build_fab_from_disk
    from flwr.common.serde import fab_from_proto
    from flwr.supernode.start_client_internal import _verify_fab

    signing.sign(EXAMPLE, key, tmp_path / "signatures")
    trusted = yaml.safe_load(signing.trusted(key.with_suffix(".pub")))
    content = build_fab_from_disk(EXAMPLE)

    def received(content: bytes) -> Any:
        fab = Fab(hash_str=hashlib.sha256(content).hexdigest(), content=content)
        behind = Behind(GetFabResponse(fab=fab).SerializeToString())
        door = Door(signatures=tmp_path / "signatures")
        answer = asked(door, behind, "POST", "/v1/fleet/get-fab", content=b"")
        return fab_from_proto(GetFabResponse.FromString(answer.content).fab)

    ours = received(content)
    assert ours.verifications["valid_license"]
    assert _verify_fab(ours, trusted)
    # Another app has none, and ours with another key is not trusted.
    assert received(content + b"more").verifications == {}
    assert not _verify_fab(ours, {"fpk_other": next(iter(trusted.values()))})


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", made], check=True)
    with pytest.raises(ConfigError, match="Ed25519"):
        signing.sign(EXAMPLE, made, tmp_path)
