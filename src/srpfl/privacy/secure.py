"""A sum of which the server learns nothing but the sum (Bonawitz et al., 2017).

Made for clients that drop out, which is what a late client is: all N that are asked agree on masks
that cancel, the server continues with the first n masked answers, and the others' masks are taken
off with shares of their keys that t of the n reveal. A masked answer that comes late stays masked:
it has a second mask of its client's own, whose shares nobody reveals then.

Keys, encryption and secret sharing are Flower's (``flwr.common.secure_aggregation``). Its own
workflow waits for every answer of a stage or a time-out, and averages by itself, so it cannot play
our rounds.

The server is honest but curious, and at most t − 1 of the N collude with it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    decrypt,
    encrypt,
    generate_shared_key,
)
from numpy.typing import NDArray

from srpfl.algorithms.averages import FRACTION
from srpfl.errors import SrpflError

Numbers = NDArray[np.float64]
Masked = NDArray[np.uint64]  # sums wrap around at 2^64
CURVE = ec.SECP256R1()


class SecureSumError(SrpflError):
    """A step of the protocol that would not be safe, or cannot be done."""


def fixed_point(values: Numbers) -> Masked:
    """Numbers as whole multiples of 2^-32, modulo 2^64: their sums are exact in any order.

    >>> real(fixed_point(np.array([0.5, -1.25])) + fixed_point(np.array([1.0, 1.0])))
    array([ 1.5 , -0.25])
    """
    if not bool((np.abs(values) < 2.0 ** (62 - FRACTION)).all()):
        raise SecureSumError("an answer is too large for the fixed point of the secure sum")
    return np.rint(values * 2.0**FRACTION).astype(np.int64).view(np.uint64)


def real(total: Masked) -> Numbers:
    """The inverse of :func:`fixed_point`, for sums that fit."""
    return np.asarray(total.view(np.int64) / 2.0**FRACTION)


@dataclass(frozen=True)
class Keys:
    """What everyone may know of a member: one key for letters, one for masks."""

    letters: bytes
    masks: bytes


@dataclass
class Member:
    """One client in one round. Its secrets never leave it but as shares in sealed letters."""

    name: int
    _letters: ec.EllipticCurvePrivateKey = field(default_factory=lambda: _private(_scalar()))
    _scalar: bytes = field(default_factory=lambda: _scalar())
    _own: bytes = field(default_factory=lambda: secrets.token_bytes(32))  # the second mask's seed
    _keys: Mapping[int, Keys] = field(default_factory=dict)
    _threshold: int = 0
    _held: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # others' shares
    _revealed: bool = False

    def introduce(self) -> Keys:
        """First letter to the server: the public keys."""
        return Keys(_public(self._letters), _public(_private(self._scalar)))

    def share(self, keys: Mapping[int, Keys], threshold: int) -> dict[int, bytes]:
        """Second: for each other member, sealed for it, shares of the two secrets."""
        if not len(keys) // 2 < threshold <= len(keys) or self.name not in keys:
            raise SecureSumError(
                f"{threshold} of {len(keys)} members may reveal masks: it must be more than half"
            )
        self._keys, self._threshold = dict(keys), threshold
        names = sorted(keys)
        of_masks = create_shares(self._scalar, threshold, len(names))
        of_own = create_shares(self._own, threshold, len(names))
        letters = {}
        for place, name in enumerate(names):
            if name == self.name:
                self._held[name] = (of_masks[place], of_own[place])
            else:
                both = len(of_masks[place]).to_bytes(4) + of_masks[place] + of_own[place]
                letters[name] = encrypt(self._letter_key(name), both)
        return letters

    def receive(self, letters: Mapping[int, bytes]) -> None:
        """The others' letters, by sender. Only members whose letter is here are masked with."""
        for name, letter in letters.items():
            both = decrypt(self._letter_key(name), letter)
            length = int.from_bytes(both[:4])
            self._held[name] = (both[4 : 4 + length], both[4 + length :])
        if len(self._held) < self._threshold:
            raise SecureSumError("too few members are left for a secure sum")

    def mask(self, values: Masked) -> Masked:
        """Third: the answer under one mask for each pair, which cancel, and one of its own."""
        total = values + _stream(self._own, len(values))
        for name in self._held:
            if name != self.name:
                total += _pair(self._scalar, self._keys[name].masks, self.name, name, len(values))
        return total

    def reveal(self, counted: Sequence[int]) -> dict[int, bytes]:
        """Fourth, once: shares of the second masks of those who count, and of the keys of those
        who do not. Never both of one member, and never for fewer than the threshold."""
        if self._revealed:
            raise SecureSumError("a member reveals its shares once: a second list could unmask one")
        if len(set(counted) & self._held.keys()) < self._threshold:
            raise SecureSumError("too few answers count for a secure sum")
        self._revealed = True
        wanted = set(counted)
        return {name: held[name in wanted] for name, held in self._held.items()}

    def _letter_key(self, name: int) -> bytes:
        return generate_shared_key(self._letters, _loaded(self._keys[name].letters))


def unmasked(
    masked: Mapping[int, Masked],
    keys: Mapping[int, Keys],
    revealed: Sequence[Mapping[int, bytes]],
    threshold: int,
) -> Masked:
    """The server's part: the sum of the answers that count, from masked ones and shares."""
    if len(revealed) < threshold:
        raise SecureSumError(f"{len(revealed)} of {threshold} members needed revealed their shares")
    shares = list(revealed)[:threshold]
    total = np.sum([*masked.values()], axis=0, dtype=np.uint64)
    length = total.size
    for name in sorted(shares[0]):
        secret = combine_shares([each[name] for each in shares])
        if name in masked:
            total -= _stream(secret, length)
        else:  # a late one: its masks with each that counts are still in the sum
            for other in masked:
                total += _pair(secret, keys[other].masks, name, other, length)
    return np.asarray(total)


def secure_sum(
    answers: Mapping[int, Masked], counted: Sequence[int], threshold: int | None = None
) -> Masked:
    """The whole protocol among members in one process: all in ``answers`` are asked, those in
    ``counted`` were fast enough.

    >>> three = {name: fixed_point(np.array([1.0 * name])) for name in (1, 2, 3)}
    >>> real(secure_sum(three, counted=[1, 3], threshold=2))
    array([4.])
    """
    names = sorted(answers)
    least = threshold or len(names) // 2 + 1
    members = {name: Member(name) for name in names}
    keys = {name: member.introduce() for name, member in members.items()}
    letters = {name: member.share(keys, least) for name, member in members.items()}
    for name, member in members.items():
        member.receive({other: letters[other][name] for other in names if other != name})
    masked = {name: members[name].mask(answers[name]) for name in counted}
    revealed = [members[name].reveal(list(counted)) for name in counted]
    return unmasked(masked, keys, revealed, least)


def _pair(scalar: bytes, other: bytes, name: int, its: int, length: int) -> Masked:
    """The mask of a pair: added by one of the two and subtracted by the other."""
    mask = _stream(generate_shared_key(_private(scalar), _loaded(other)), length)
    return mask if name < its else np.uint64(0) - mask


def _stream(seed: bytes, length: int) -> Masked:
    """Numbers that nobody without the seed can tell from random ones."""
    key = hashlib.sha256(seed).digest()  # used for nothing else, so the nonce may be fixed
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * length)), dtype=np.uint64).copy()


def _scalar() -> bytes:
    number = ec.generate_private_key(CURVE).private_numbers().private_value
    return number.to_bytes(32)


def _private(scalar: bytes) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(scalar), CURVE)


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def _loaded(point: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point)
