"""The only door to a SuperLink from outside: what nodes need, and nothing else.

A SuperLink serves nodes, its own apps and those who control it on one port, and asks those who
control it for nothing but its CA certificate. So it listens on loopback, and this gateway in front
of it lets only the calls of nodes through, each up to a size, and of what they say only answers
(see srpfl.flower.letters). With a folder of signatures, apps on their way to nodes get theirs (see
srpfl.flower.signing).
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from srpfl.flower.events import say
from srpfl.flower.letters import Letters
from srpfl.flower.signing import with_signature
from srpfl.flower.texts import harmless

FLEET = "/v1/fleet/"
# A node that is registered by its operator needs these; it does not register itself.
CALLS = frozenset(
    {
        "activate-node",
        "confirm-message-received",
        "deactivate-node",
        "get-fab",
        "get-run",
        "pull-messages",
        "pull-object",
        "push-messages",
        "push-object",
        "send-node-heartbeat",
    }
)
OPEN = frozenset({"register-node", "unregister-node"})  # what nodes without keys need beside them
LARGEST = 64 << 20  # bytes of an upload: Flower cuts arrays into pieces of 20 MiB
SMALL = 4 << 20  # of any other call: what it announces, its server takes into memory as a whole
HELD = 16  # so many of the largest calls and answers may be in memory, for all callers ...
HELD_BY_ONE = 12  # ... and from one place, which may be many nodes behind one address
LINES = 2000  # open at a time ...
LINES_OF_ONE = 1500  # ... and from one place
UPLOAD = 600.0  # seconds for a call to come in, and for its answer to go out ...
PIECE = 1 << 18  # ... of so many bytes at a time
PASSED = (b"content-type", b"accept")  # headers, beside Flower's own

Scope = MutableMapping[str, Any]
Header = tuple[bytes, bytes]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Door:
    """What a gateway lets through."""

    calls: frozenset[str] = CALLS
    largest: int = LARGEST
    lines: int = LINES_OF_ONE  # that one place may hold open
    signatures: Path | None = None

    def most(self, path: str) -> int:
        """Bytes that a call may have."""
        return self.largest if path == f"{FLEET}push-object" else min(self.largest, SMALL)

    def lets(self, method: str, path: str) -> bool:
        """Whether a call may pass.

        >>> Door().lets("POST", "/v1/fleet/pull-messages")
        True
        >>> Door().lets("POST", "/v1/control/stop-run")
        False
        """
        if method == "GET":
            return path == "/health"
        return method == "POST" and path.startswith(FLEET) and path[len(FLEET) :] in self.calls


class Gateway:
    """An ASGI app in front of a SuperLink; ``ask`` makes the call to it."""

    def __init__(self, superlink: str, door: Door, *, ca: Path | None = None) -> None:
        import httpx

        verify: Any = ssl.create_default_context(cafile=str(ca)) if ca else True
        self.door, self.letters = door, Letters()
        self._held = Counter[str]()  # bytes of calls that are on their way, by place
        self.client = httpx.AsyncClient(base_url=superlink, verify=verify, timeout=60.0)
        self._unreachable = httpx.HTTPError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            await self.client.aclose()
            return
        if scope["type"] != "http":
            return
        method, path = scope["method"], scope["path"]
        who = (scope.get("client") or ("?",))[0]
        if not self.door.lets(method, path):
            say(f"turned away {harmless(method, 10)} {harmless(path, 60)} from {who}", kind="door")
            await _answer(send, 404, b"")
            return
        with Taken(self._held, place_of(who)) as taken:
            try:
                call = await self._take(_parts_of(receive), taken, self.door.most(path))
                if path == f"{FLEET}push-messages" and (wrong := self.letters.wrong(call)):
                    say(f"turned away {wrong} from {who}", level="warning", kind="door")
                    raise TurnedAway(403)
                status, headers, content = await self._ask(method, path, call, scope, taken)
            except TurnedAway as refused:
                status, headers, content = refused.status, [], b""
            with suppress(TimeoutError):  # who does not take its answer is hung up on
                async with asyncio.timeout(UPLOAD):
                    await _answer(send, status, content, headers)

    async def _take(self, parts: AsyncIterator[bytes], taken: Taken, most: int) -> bytes:
        """The whole of a call, or of an answer to it. Nobody has shown a key at this point, and a
        caller may never take its answer: so what all callers together can take up is bounded, and
        what one can."""
        whole = bytearray()
        try:
            async with asyncio.timeout(UPLOAD):
                async for part in parts:
                    whole += part
                    taken.add(len(part))
                    if len(whole) > most:
                        raise TurnedAway(413)
                    if not self._has_room(taken.place):
                        raise TurnedAway(503)
        except TimeoutError:
            raise TurnedAway(408) from None
        return bytes(whole)

    def _has_room(self, place: str) -> bool:
        one, all_of_them = self._held[place], self._held.total()
        return one <= HELD_BY_ONE * self.door.largest and all_of_them <= HELD * self.door.largest

    async def _ask(
        self, method: str, path: str, call: bytes, scope: Scope, taken: Taken
    ) -> tuple[int, list[Header], bytes]:
        """The SuperLink's answer."""
        headers = [(k, v) for k, v in scope["headers"] if k.startswith(b"flwr-") or k in PASSED]
        try:
            async with self.client.stream(method, path, content=call, headers=headers) as answer:
                taken.give_back()
                content = await self._take(answer.aiter_bytes(), taken, self.door.largest)
        except self._unreachable:
            raise TurnedAway(503) from None
        if path == f"{FLEET}pull-messages":
            self.letters.sent(content)
        if path == f"{FLEET}get-fab" and answer.status_code == 200 and self.door.signatures:
            content = with_signature(content, self.door.signatures)
        kept = [
            (name.lower().encode(), value.encode())
            for name, value in answer.headers.items()
            if name.lower().startswith("flwr-") or name.lower() == "content-type"
        ]
        return answer.status_code, kept, content


class TurnedAway(Exception):
    """A call that is not passed on, or whose answer is not."""

    def __init__(self, status: int) -> None:
        self.status = status


@dataclass
class Taken:
    """The bytes that a call takes up, and then its answer."""

    held: Counter[str]
    place: str
    size: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        self.give_back()

    def give_back(self) -> None:
        _less(self.held, self.place, self.size)
        self.size = 0

    def add(self, size: int) -> None:
        self.held[self.place] += size
        self.size += size


async def _parts_of(receive: Receive) -> AsyncIterator[bytes]:
    """A call's body as it comes in."""
    more = True
    while more:
        part = await receive()
        if part["type"] != "http.request":  # it broke off
            raise TurnedAway(400)
        yield part.get("body", b"")
        more = part.get("more_body", False)


def serve_gateway(
    gateway: Gateway, host: str, port: int, *, certificate: Path | None, key: Path | None
) -> None:
    """Serve until stopped."""
    import uvicorn

    uvicorn.run(
        gateway,
        host=host,
        port=port,
        http=bounded(gateway.door.lines),
        ws="none",
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        limit_concurrency=LINES,
        timeout_keep_alive=75,
        server_header=False,
    )


def bounded(lines: int) -> type[asyncio.Protocol]:
    """uvicorn's way to talk, with a bound on the lines of one place: else anyone who reaches the
    port could take them all, without a key and without a word."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    lines_of = Counter[str]()

    class Bounded(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.place = place_of((transport.get_extra_info("peername") or ("?",))[0])
            lines_of[self.place] += 1
            if lines_of[self.place] > lines:
                transport.abort()

        def connection_lost(self, error: Exception | None) -> None:
            _less(lines_of, self.place, 1)
            super().connection_lost(error)

    return Bounded


def place_of(address: str) -> str:
    """Where a caller is: its address, or the network of 2^64 that IPv6 gives to everyone.

    >>> place_of("192.0.2.7"), place_of("::ffff:192.0.2.7"), place_of("2001:db8::1:7")
    ('192.0.2.7', '192.0.2.7', '2001:db8::/64')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    mapped = found.ipv4_mapped
    return str(mapped or ipaddress.ip_network((found, 64), strict=False))


def _less(counts: Counter[str], place: str, by: int) -> None:
    """Places that have nothing left are forgotten."""
    counts[place] -= by
    if counts[place] <= 0:
        del counts[place]


async def _answer(send: Send, status: int, body: bytes, headers: Sequence[Header] = ()) -> None:
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    # In pieces: the next one waits until the caller has taken those before it.
    for place in range(0, len(body), PIECE):
        piece = body[place : place + PIECE]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
