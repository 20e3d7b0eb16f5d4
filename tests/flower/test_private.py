"""What these tests use of Flower that is not public: here it is noticed when it changes."""

from __future__ import annotations

import subprocess
import sys

from flwr.app import Message, RecordDict
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
