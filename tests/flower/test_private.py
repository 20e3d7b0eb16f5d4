"""What these tests use of Flower that is not public: here it is noticed when it changes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from flower import fake_grid


def test_a_message_takes_its_run_from_the_process_identity() -> None:
    message = Message(RecordDict(), 5, "train")
    assert message.metadata.run_id == fake_grid.TaskIdentity.run_id
    assert message.metadata.src_node_id == 1


def test_a_reply_knows_the_id_that_the_grid_gave() -> None:
    message = Message(RecordDict(), 5, "train")
    message.metadata.__dict__["_message_id"] = "m1"
    reply = Message(RecordDict(), reply_to=message)
    assert reply.metadata.reply_to_message_id == "m1"
    assert reply.metadata.src_node_id == 5


def test_the_grid_has_the_members_that_we_use() -> None:
    assert Grid.__abstractmethods__ == {
        "set_run",
        "run",
        "create_message",
        "get_node_ids",
        "push_messages",
        "pull_messages",
        "send_and_receive",
    }


def test_srpfl_alone_does_not_import_flower() -> None:
    code = "import sys, srpfl, srpfl.cli; sys.exit('flwr' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_the_line_to_the_superlink_is_where_replies_are_fetched_with_care() -> None:
    from flwr.superlink.grid.http_grid import HttpGrid

    from srpfl.flower.parcels import _client_of

    grid = HttpGrid("127.0.0.1:9", insecure=True, token="none")
    line = _client_of(grid, 1000)
    assert line is not None
    assert len(line._client.event_hooks["response"]) == 1
    assert hasattr(grid, "node")
    grid.close()


def test_what_a_node_sends_does_not_name_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    import platform
    import socket

    import httpx
    from flwr.common.serde import message_to_proto
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import generate_key_pairs
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    for module, name in ((socket, "gethostname"), (socket, "getfqdn"), (platform, "node")):
        monkeypatch.setattr(module, name, lambda *_: "a-host-that-nobody-should-know")
    sent = []

    def taken(request: httpx.Request) -> httpx.Response:
        sent.append(repr((request.headers, request.content)))
        return httpx.Response(200)

    signs = NodeAuthHttpInterceptor(*generate_key_pairs())
    told = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    line = FleetHttpClient.from_server_address(
        "10.0.0.1:8000", True, None, interceptors=[told, signs]
    )
    line._client = httpx.Client(transport=httpx.MockTransport(taken))
    message = Message(RecordDict({"answer": ConfigRecord({"loss": 0.5})}), 5, "train")
    message.metadata.__dict__["_message_id"] = "m1"
    proto = message_to_proto(message)
    line.PushMessages(PushMessagesRequest(node=Node(node_id=5), messages_list=[proto]))
    assert len(sent) == 1
    assert "nobody-should-know" not in sent[0]
