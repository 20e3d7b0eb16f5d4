"""The door to a SuperLink: what nodes need passes, and nothing else reaches it."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from flwr.proto.fab_pb2 import Fab, GetFabResponse
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
from flwr.proto.node_pb2 import Node

from srpfl.errors import ConfigError
from srpfl.flower import signing
from srpfl.flower.gateway import CALLS, HELD, HELD_BY_ONE, SMALL, Door, Gateway, bounded
from srpfl.flower.letters import Letters

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


class Behind:
    """The SuperLink: it notes what comes through."""

    def __init__(self, answer: bytes = b"fine") -> None:
        self.calls: list[tuple[str, bytes, dict[str, str]]] = []
        self.answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.calls.append((request.url.path, request.content, dict(request.headers)))
        return httpx.Response(200, content=self.answer, headers={"flwr-x": "1", "server": "secret"})


def asked(
    door: Door,
    behind: Behind,
    method: str,
    path: str,
    gateway: Gateway | None = None,
    **given: Any,
) -> httpx.Response:
    gateway = gateway or Gateway("https://127.0.0.1:8000", door)
    gateway.client = httpx.AsyncClient(
        base_url="http://superlink", transport=httpx.MockTransport(behind)
    )

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=gateway)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://door") as client:
            return await client.request(method, path, **given)

    return asyncio.run(ask())


def tree(name: str, children: Sequence[ObjectTree] = ()) -> ObjectTree:
    number = hashlib.sha256(name.encode()).hexdigest()
    return ObjectTree(object_id=number, children=children)


TREE = tree("m2", [tree("r")])


def answers(
    *trees: ObjectTree, node: int = 5, source: int = 5, to: str = "m1", target: int = 1
) -> bytes:
    """What a node says to the SuperLink when it answers a letter."""
    about = Metadata(src_node_id=source, dst_node_id=target, reply_to_message_id=to)
    request = PushMessagesRequest(node=Node(node_id=node), message_object_trees=trees)
    request.messages_list.append(Message(metadata=about))
    return request.SerializeToString()


@pytest.mark.parametrize("call", sorted(CALLS))
def test_what_a_node_needs_passes(call: str) -> None:
    behind = Behind()
    headers = {"flwr-public-key": "k", "authorization": "no", "cookie": "no"}
    body = answers(TREE) if call == "push-messages" else b"body"
    answer = asked(Door(), behind, "POST", f"/v1/fleet/{call}", content=body, headers=headers)
    assert (answer.status_code, answer.content) == (200, b"fine")
    assert "server" not in answer.headers
    [(path, content, passed)] = behind.calls
    assert (path, content) == (f"/v1/fleet/{call}", body)
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


@pytest.mark.parametrize(
    "said",
    [
        answers(TREE, source=1, to="", target=6),  # a letter to another node, as the server's
        answers(TREE, to="", target=6),
        answers(TREE, source=6),
        answers(TREE, target=6),
        answers(),
        answers(TREE, TREE),
        answers(ObjectTree(children=[ObjectTree()] * 1000)),
        answers(ObjectTree.FromString(TREE.SerializeToString() + b"\x12\x00" * 1_000_000)),
        b"",
        b"body",
    ],
)
def test_a_node_can_only_answer_and_in_its_own_name(said: bytes) -> None:
    behind, began = Behind(), time.process_time()
    assert asked(Door(), behind, "POST", "/v1/fleet/push-messages", content=said).status_code == 403
    assert behind.calls == []
    assert time.process_time() - began < 1.5  # meanwhile nobody else is served


def test_what_the_server_sent_cannot_be_announced_as_something_else() -> None:
    """The SuperLink would believe it, and the server's next letter with that object would fail."""
    w, b = tree("w"), tree("b")
    letter = tree("m1", [tree("sent", [w, b])])
    sent = PullMessagesResponse(message_object_trees=[letter]).SerializeToString()
    same = [tree("sent", [b, w]), w]
    others = [
        tree("sent"),
        tree("sent", [w]),
        tree("own", [tree("w", [b])]),
    ]
    letters = Letters(most=4)
    letters.sent(b"no letters")
    letters.sent(sent)
    for part in same:
        assert letters.wrong(answers(tree("m2", [part]))) is None
    for part in others:
        assert letters.wrong(answers(tree("m2", [part])))
    newer = PullMessagesResponse(message_object_trees=[TREE]).SerializeToString()
    letters.sent(newer)
    assert len(letters._below) == 4  # it does not grow for ever

    gateway = Gateway("https://127.0.0.1:8000", Door())
    behind = Behind(sent)
    for path, content, status in (
        ("pull-messages", b"", 200),
        ("push-messages", answers(same[0]), 200),
        ("push-messages", answers(others[0]), 403),
    ):
        given = {"content": content, "gateway": gateway}
        assert asked(Door(), behind, "POST", f"/v1/fleet/{path}", **given).status_code == status


def test_what_is_too_large_is_not_passed_on() -> None:
    behind = Behind()
    answer = asked(Door(largest=10), behind, "POST", "/v1/fleet/push-object", content=b"x" * 11)
    assert answer.status_code == 413
    assert behind.calls == []


def test_only_an_upload_may_be_large() -> None:
    """What announces an answer reaches the server app as a whole, with what is hidden in it."""
    for call in CALLS:
        behind = Behind()
        answer = asked(Door(), behind, "POST", f"/v1/fleet/{call}", content=bytes(SMALL + 1))
        large = call == "push-object"
        assert (answer.status_code, len(behind.calls)) == ((200, 1) if large else (413, 0))


class Slow:
    """A caller that sends the first part of a call, and the rest when it is told to."""

    def __init__(self, first: bytes, address: str = "192.0.2.1") -> None:
        self.address = address
        self.parts = [{"type": "http.request", "body": first, "more_body": True}]
        self.rest, self.status = asyncio.Event(), 0

    async def receive(self) -> Any:
        if self.parts:
            return self.parts.pop()
        await self.rest.wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)

    async def calls(self, gateway: Gateway) -> None:
        scope = {"type": "http", "method": "POST", "path": "/v1/fleet/push-object", "headers": []}
        scope["client"] = (self.address, 1)
        await gateway(scope, self.receive, self.send)


def slow_calls(count: int, *, places: int = 1) -> tuple[list[int], list[int]]:
    """What so many callers at once hear before they send the rest, and after it."""

    async def play() -> tuple[list[int], list[int]]:
        gateway = Gateway("https://127.0.0.1:8000", Door(largest=10))
        gateway.client = httpx.AsyncClient(
            base_url="http://superlink", transport=httpx.MockTransport(Behind())
        )
        callers = [Slow(b"x" * 10, f"192.0.2.{number % places}") for number in range(count)]
        tasks = [asyncio.create_task(caller.calls(gateway)) for caller in callers]
        await asyncio.sleep(0.05)
        before = [caller.status for caller in callers]
        for caller in callers:
            caller.rest.set()
        await asyncio.gather(*tasks)
        late = Slow(b"x")
        late.rest.set()
        await late.calls(gateway)
        return before, [*(caller.status for caller in callers), late.status]

    return asyncio.run(play())


def test_callers_without_a_key_cannot_fill_the_memory() -> None:
    before, after = slow_calls(HELD + 2, places=HELD)
    assert before == [0] * HELD + [503] * 2
    assert after == [200] * HELD + [503] * 2 + [200]


def test_one_caller_leaves_room_for_others() -> None:
    before, after = slow_calls(HELD_BY_ONE + 2)
    assert before == [0] * HELD_BY_ONE + [503] * 2
    assert after == [200] * HELD_BY_ONE + [503] * 2 + [200]


class Deaf(Slow):
    """A caller that does not take its answer until it is told to."""

    def __init__(self) -> None:
        super().__init__(b"x")
        self.took, self.goes_on = 0, asyncio.Event()
        self.rest.set()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message.get("more_body"):
            await self.goes_on.wait()
        self.took += len(message.get("body", b""))


@pytest.mark.parametrize("patient", [True, False])
def test_answers_that_are_not_taken_cannot_fill_the_memory_either(
    patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may ask for the model as often as it likes, and read none of it."""
    if not patient:
        monkeypatch.setattr("srpfl.flower.gateway.UPLOAD", 0.2)

    async def play() -> tuple[list[int], list[int], int]:
        gateway = Gateway("https://127.0.0.1:8000", Door(largest=100))
        gateway.client = httpx.AsyncClient(
            base_url="http://superlink", transport=httpx.MockTransport(Behind(b"x" * 100))
        )
        callers = [Deaf() for _ in range(HELD_BY_ONE + 2)]
        tasks = [asyncio.create_task(caller.calls(gateway)) for caller in callers]
        await asyncio.sleep(0.1 if patient else 0.5)
        held = gateway._held.total()
        for caller in callers if patient else []:
            caller.goes_on.set()
        await asyncio.gather(*tasks)
        assert not gateway._held
        return [caller.status for caller in callers], [caller.took for caller in callers], held

    statuses, took, held = asyncio.run(play())
    assert statuses == [200] * HELD_BY_ONE + [503] * 2
    assert took == [100 if patient else 0] * HELD_BY_ONE + [0] * 2
    assert held == (100 * HELD_BY_ONE if patient else 0)


def test_a_call_that_breaks_off_is_not_passed_on() -> None:
    behind, gateway = Behind(), Gateway("https://127.0.0.1:8000", Door())
    gateway.client = httpx.AsyncClient(
        base_url="http://superlink", transport=httpx.MockTransport(behind)
    )
    caller = Slow(b"half")
    caller.parts.insert(0, {"type": "http.disconnect"})
    asyncio.run(caller.calls(gateway))
    assert (caller.status, behind.calls) == (400, [])


def test_one_caller_cannot_hold_all_lines_open() -> None:
    """Lines that say nothing count too; whoever has too many of them is hung up on, and has its
    place back with the first that it closes."""

    async def play() -> tuple[list[bytes], bytes]:
        gateway = Gateway("https://127.0.0.1:8000", Door())
        gateway.client = httpx.AsyncClient(
            base_url="http://superlink", transport=httpx.MockTransport(Behind())
        )
        quiet = {"log_level": "critical", "lifespan": "off", "ws": "none"}
        config = uvicorn.Config(gateway, http=bounded(2), **quiet)  # type: ignore[arg-type]
        config.load()
        state = uvicorn.Server(config).server_state

        def made() -> Any:
            return config.http_protocol_class(config=config, server_state=state, app_state={})

        server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
        where = server.sockets[0].getsockname()[:2]

        async def said(reader: Any, writer: Any) -> bytes:
            try:
                writer.write(b"GET /health HTTP/1.1\r\nHost: door\r\n\r\n")
                return (await asyncio.wait_for(reader.readline(), 20))[:12]
            except ConnectionError:
                return b""

        lines = [await asyncio.open_connection(*where) for _ in range(3)]
        await asyncio.sleep(0.05)
        heard = [await said(*line) for line in reversed(lines)]
        lines[0][1].close()
        await asyncio.sleep(0.05)
        another = await asyncio.open_connection(*where)
        heard_then = await said(*another)
        for _, writer in [*lines, another]:
            writer.close()
        server.close()
        await asyncio.sleep(0.05)
        return heard, heard_then

    heard, then = asyncio.run(play())
    assert heard == [b"", b"HTTP/1.1 200", b"HTTP/1.1 200"]
    assert then == b"HTTP/1.1 200"


def test_a_call_that_does_not_come_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srpfl.flower.gateway.UPLOAD", 0.01)
    assert slow_calls(1) == ([408], [408, 200])


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
