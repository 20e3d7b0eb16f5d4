"""Network namespaces as machines: a server, two nodes, an outsider with the CA certificate.

The server's namespace holds the bridge that the others hang on; nothing is reachable from, or goes
to, the machine's own network.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from srpfl.flower.guard import MARK, end_all
from srpfl.flower.local import until
from srpfl.flower.signing import sign

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),
]
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flower"
LIMIT = 600.0
SERVER = "10.77.0.1"

SPY = '''"""An app that nobody signed: it looks for what nodes keep."""

from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


@client.query()
def look(message, context):
    Path(context.run_config["mark"]).write_text("the spy was here")
    return Message(RecordDict({"found": ConfigRecord({"x": 1})}), reply_to=message)


@server.main()
def main(grid, context):
    for node in grid.get_node_ids():
        message = Message(RecordDict(), node, "query")
        for reply in grid.send_and_receive([message], timeout=40):
            said = reply.error.reason if reply.has_error() else reply.content
            print("SPY HEARD", said, flush=True)
'''
PYPROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "spy"
version = "1.0.0"
description = "spy"
license = "Apache-2.0"
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "spy"
[tool.flwr.app.components]
serverapp = "spy:server"
clientapp = "spy:client"
[tool.flwr.app.config]
mark = "{mark}"
"""


class Machines:
    """Namespaces, and the processes in them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex
        self.tag = self.mark[:6]
        self.started: list[subprocess.Popen[bytes]] = []

    def name(self, machine: str) -> str:
        return f"srpfl-{self.tag}-{machine}"

    def build(self, *others: str) -> None:
        ip("netns", "add", self.name("server"))
        self.ip("server", "link", "set", "lo", "up")
        self.ip("server", "link", "add", "br0", "type", "bridge")
        self.ip("server", "addr", "add", f"{SERVER}/24", "dev", "br0")
        self.ip("server", "link", "set", "br0", "up")
        for number, other in enumerate(others):
            here, there = f"s{number}-{self.tag}", f"o{number}-{self.tag}"
            ip("netns", "add", self.name(other))
            ip("link", "add", "name", there, "type", "veth", "peer", "name", here)
            ip("link", "set", there, "netns", self.name(other))
            ip("link", "set", here, "netns", self.name("server"))
            self.ip("server", "link", "set", here, "master", "br0", "up")
            self.ip(other, "link", "set", "lo", "up")
            self.ip(other, "addr", "add", f"10.77.0.{number + 2}/24", "dev", there)
            self.ip(other, "link", "set", there, "up")

    def ip(self, machine: str, *arguments: str) -> None:
        ip("-n", self.name(machine), *arguments)

    def _command(self, machine: str, words: list[str]) -> list[str]:
        program = Path(sys.executable).parent / words[0]
        first = str(program) if program.exists() else words[0]
        return ["ip", "netns", "exec", self.name(machine), first, *words[1:]]

    def _environment(self, machine: str) -> dict[str, str]:
        home = self.folder / machine / "home"
        home.mkdir(parents=True, exist_ok=True)
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "OMP_NUM_THREADS": "1",
            MARK: self.mark,
        }

    def start(self, machine: str, name: str, *words: str) -> None:
        environment = self._environment(machine)
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self._command(machine, list(words)),
                env=environment,
                cwd=self.folder / machine,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)

    def call(self, machine: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(machine, list(words)),
            env=self._environment(machine),
            cwd=self.folder / machine,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def remove(self) -> None:
        end_all(self.mark)
        for process in self.started:
            process.wait(timeout=30)
        listed = subprocess.run(
            ["ip", "netns", "list"], capture_output=True, text=True, check=False
        )
        for line in listed.stdout.splitlines():
            if line.split()[0].startswith(f"srpfl-{self.tag}-"):
                ip("netns", "del", line.split()[0])


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need iproute2 and root")
    made = Machines(tmp_path)
    try:
        made.build("one", "two", "outsider")
    except subprocess.CalledProcessError as error:
        made.remove()
        pytest.skip(f"no network namespaces here: {error.stderr.decode()[-80:]}")
    try:
        yield made
    finally:
        made.remove()


def connection(machines: Machines, machine: str, address: str, ca: Path) -> None:
    home = machines.folder / machine / "home"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "ours"\n\n[superlink.ours]\naddress = "{address}"\n'
        f'root-certificates = "{ca}"\n'
    )


def test_an_outsider_with_the_ca_certificate_achieves_nothing(
    machines: Machines, tmp_path: Path
) -> None:
    keys, signatures = tmp_path / "keys", tmp_path / "signatures"
    script = EXAMPLE / "make_keys.sh"
    subprocess.run(["sh", script, keys, SERVER, "3"], check=True, timeout=60, capture_output=True)
    sign(EXAMPLE, keys / "app", signatures)
    tls = ["--ssl-ca-certfile", f"{keys}/ca.crt", "--ssl-certfile", f"{keys}/server.crt"]
    machines.start(
        "server", "superlink", "flower-superlink", "--host", "127.0.0.1", "--port", "8000", *tls,
        "--ssl-keyfile", f"{keys}/server.key", "--enable-supernode-auth", "--database",
        f"{tmp_path}/state.db", "--disable-runtime-dependency-installation",
    )  # fmt: skip
    machines.start(
        "server", "gateway", "srpfl", "deploy", "gateway", "--host", SERVER, "--certificate",
        f"{keys}/server.crt", "--key", f"{keys}/server.key", "--ca", f"{keys}/ca.crt",
        "--signatures", str(signatures),
    )  # fmt: skip
    connection(machines, "server", "127.0.0.1:8000", keys / "ca.crt")
    for number, machine in enumerate(("one", "two")):
        register = ["flwr", "supernode", "register", str(keys / "public" / f"node-{number}.pub")]

        def registered(register: list[str] = register) -> bool:
            return machines.call("server", *register, "ours").returncode == 0

        until(registered, LIMIT, "the SuperLink to take a node's key", poll=2.0)
        machines.start(machine, machine, *node(keys, tmp_path, number, number))

    outsider = Outsider(machines, keys, tmp_path)
    outsider.tries_everything()

    run = ["--run-config", f'clients=2 rounds=2 every=1 evaluate-every=2 out="{tmp_path}/run"']
    done = machines.call("server", "flwr", "run", str(EXAMPLE), "ours", *run)
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: ended(tmp_path / "run"), LIMIT, "the run", poll=1.0)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["done"], status["present"]) == ("over", 2, 2), status
    assert "turned away POST /v1/control" in machines.log("gateway")
    assert "Activated" not in machines.log("outsider")

    # Not even who controls the SuperLink can run on the nodes what nobody signed.
    spy, seen = tmp_path / "spy", tmp_path / "the-spy-was-here"
    spy.mkdir()
    (spy / "spy.py").write_text(SPY)
    (spy / "pyproject.toml").write_text(PYPROJECT.format(mark=seen))
    done = machines.call("server", "flwr", "run", str(spy), "ours")
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: "could not be verified" in machines.log("one") + machines.log("two"),
          LIMIT, "the nodes to refuse the spy", poll=1.0)  # fmt: skip
    time.sleep(5)
    assert not seen.exists()


def node(keys: Path, folder: Path, key: int, client: int) -> list[str]:
    return [
        "flower-supernode", "--superlink", f"{SERVER}:8443", "--root-certificates",
        f"{keys}/ca.crt", "--auth-supernode-private-key", f"{keys}/node-{key}",
        "--trusted-entities", f"{keys}/trusted.yaml", "--node-config",
        f'partition-id={client} personal-dir="{folder}/personal-{client}"',
    ]  # fmt: skip


def ended(run: Path) -> bool:
    path = run / "status.json"
    return path.exists() and json.loads(path.read_text())["state"] != "running"


class Outsider:
    """Has the CA certificate and a key of its own, and reaches the gateway."""

    def __init__(self, machines: Machines, keys: Path, folder: Path) -> None:
        self.machines, self.keys, self.folder = machines, keys, folder

    def tries_everything(self) -> None:
        machines, keys = self.machines, self.keys
        connection(machines, "outsider", f"{SERVER}:8443", keys / "ca.crt")
        public = str(keys / "public" / "node-2.pub")
        for words in (
            ["list"],
            ["supernode", "register", public, "ours"],
            ["run", str(EXAMPLE), "ours"],
            ["stop", "1", "ours"],
        ):
            done = machines.call("outsider", "flwr", *words)
            assert done.returncode != 0 or "success" not in done.stdout.lower(), words
        direct = [
            sys.executable,
            "-c",
            f"import socket; socket.create_connection(('{SERVER}', 8000), 5)",
        ]
        assert machines.call("outsider", *direct).returncode != 0
        machines.start("outsider", "outsider", *node(keys, self.folder, 2, 0))
        until(lambda: "Failed to initialize" in machines.log("outsider"),
              LIMIT, "the outsider's node to be turned away", poll=1.0)  # fmt: skip
