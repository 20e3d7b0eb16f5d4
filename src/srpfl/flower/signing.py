"""Signed apps: nodes run nothing but what the holder of a key has signed.

Flower's nodes can be told whose signatures they trust (``flower-supernode --trusted-entities``),
but its SuperLink has signatures only for apps of Flower's own hub. Here an app is signed with a key
of ours; the gateway hands the signature out with the app, and the node checks it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from pathlib import Path
from typing import Any

from srpfl.errors import ConfigError


def sign(app: Path, key: Path, folder: Path) -> Path:
    """Sign the app in a folder as ``flwr run`` would bundle it; where the signature was put."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.cli.build import build_fab_from_disk
    from flwr.supercore.primitives.asymmetric_ed25519 import create_message_to_sign

    try:
        private = load_ssh_private_key(key.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the key {key}: {error}") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigError(f"{key} must be an Ed25519 key: ssh-keygen -t ed25519 makes one")
    if not (app / "pyproject.toml").exists():
        raise ConfigError(f"{app} holds no Flower app: it has no pyproject.toml")
    digest = hashlib.sha256(build_fab_from_disk(app)).digest()
    signed_at = int(time.time())
    signature = private.sign(create_message_to_sign(digest, signed_at))
    entry = {"signed_at": signed_at, "signature": _text(signature)}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{digest.hex()}.json"
    path.write_text(json.dumps({key_id(public_text(private.public_key())): entry}) + "\n")
    return path


def trusted(public: Path) -> str:
    """The text of the file for ``--trusted-entities``: the signer's public key under its id."""
    text = " ".join(public.read_text().split()[:2])
    return f"{key_id(text)}: '{text}'\n"


def public_text(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    text: bytes = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return text.decode()


def key_id(public: str) -> str:
    """A name for a key, made of the key.

    >>> key_id("ssh-ed25519 AAAA")
    'fpk_9de8a23119db6492'
    """
    return "fpk_" + hashlib.sha256(public.encode()).hexdigest()[:16]


def with_signature(answer: bytes, folder: Path) -> bytes:
    """A SuperLink's answer that holds an app, with the signatures that there are for it."""
    from flwr.proto.fab_pb2 import GetFabResponse

    response = GetFabResponse.FromString(answer)
    digest = hashlib.sha256(response.fab.content).hexdigest()
    path = folder / f"{digest}.json"
    if not path.is_file():
        return answer
    found: dict[str, Any] = json.loads(path.read_text())
    for name, entry in found.items():
        response.fab.verifications[name] = json.dumps(entry)
    response.fab.verifications["valid_license"] = "Valid"  # the node looks for signatures then
    signed: bytes = response.SerializeToString()
    return signed


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
