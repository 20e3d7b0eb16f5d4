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
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from cryptography.fernet import InvalidToken
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

from srpfl.algorithms import summed
from srpfl.errors import SrpflError

Numbers = NDArray[np.float64]
Masked = NDArray[np.uint64]  # sums wrap around at 2^64
CURVE = ec.SECP256R1()
SHARE = 52  # bytes of a share of 32 bytes, as Flower makes them


class SecureSumError(SrpflError):
    """A step of the protocol that would not be safe, or cannot be done."""


def fixed_point(values: Numbers) -> Masked:
    """Numbers as whole multiples of 2^-32, modulo 2^64: their sums are exact in any order.

    >>> real(fixed_point(np.array([0.5, -1.25])) + fixed_point(np.array([1.0, 1.0])))
    array([ 1.5 , -0.25])
    """
    return np.asarray(summed.fixed_point(torch.from_numpy(values)).numpy().view(np.uint64))


def real(total: Masked) -> Numbers:
    """The inverse of :func:`fixed_point`, for sums that fit."""
    return np.asarray(total.view(np.int64) / 2.0**summed.FRACTION)


def threshold_of(members: int) -> int:
    """How many must be left to take masks off: more than half, so that a server cannot get two
    different lists of those who count revealed."""
    return members // 2 + 1


@dataclass(frozen=True)
class Keys:
    """What everyone may know of a member: one key for letters, one for masks."""

    letters: bytes
    masks: bytes


@dataclass
class Member:
    """One client in one round. Its secrets never leave it but as shares in sealed letters."""

    name: int
    _letters: bytes = field(default_factory=lambda: _scalar())  # the private key of letters
    _scalar: bytes = field(default_factory=lambda: _scalar())  # that of masks
    _own: bytes = field(default_factory=lambda: secrets.token_bytes(32))  # the second mask's seed
    _keys: Mapping[int, Keys] = field(default_factory=dict)
    _threshold: int = 0
    fewest: int = 0  # answers in the sum: it reveals nothing for fewer
    _peers: set[int] = field(default_factory=set)  # with whom it has masks
    _held: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # shares, its own too
    _revealed: bool = False

    def introduce(self) -> Keys:
        """First letter to the server: the public keys."""
        return Keys(_public(_private(self._letters)), _public(_private(self._scalar)))

    def share(self, keys: Mapping[int, Keys], threshold: int, fewest: int = 0) -> dict[int, bytes]:
        """Second: for each other member, sealed for it, shares of the two secrets, of which the
        threshold is enough. More than those may have to count before anyone reveals."""
        if not len(keys) // 2 < threshold <= len(keys) or self.name not in keys:
            raise SecureSumError(
                f"{threshold} of {len(keys)} members may reveal masks: it must be more than half"
            )
        if len(keys) < summed.FEWEST or keys[self.name] != self.introduce():
            raise SecureSumError("the server's list of members is not one to add up with")
        if self._held:
            raise SecureSumError("a member shares its secrets once")
        self._keys, self._threshold, self.fewest = dict(keys), threshold, max(threshold, fewest)
        names = sorted(keys)
        of_masks = create_shares(self._scalar, threshold, len(names))
        of_own = create_shares(self._own, threshold, len(names))
        letters = {}
        for place, name in enumerate(names):
            if name == self.name:
                self._held[name] = (of_masks[place], of_own[place])
            else:
                both = of_masks[place] + of_own[place]
                letters[name] = encrypt(self._letter_key(name), both)
        return letters

    def receive(self, letters: Mapping[int, bytes]) -> None:
        """The others' letters, by sender. Only members whose letter is here are masked with. A
        letter that cannot be read is its sender's fault, and no reason to stop."""
        strange = letters.keys() - self._keys.keys()
        if strange or self._peers:
            raise SecureSumError("the server's letters are not those of this round's members")
        self._peers = set(letters) - {self.name}
        for name in self._peers:
            try:
                both = decrypt(self._letter_key(name), letters[name])
            except InvalidToken:
                continue
            if len(both) == 2 * SHARE:
                self._held[name] = (both[:SHARE], both[SHARE:])
        if len(self._peers) + 1 < self._threshold:
            raise SecureSumError("too few members are left for a secure sum")

    def mask(self, values: Masked) -> Masked:
        """Third: the answer under one mask for each pair, which cancel, and one of its own."""
        if not self._peers:
            raise SecureSumError("there is nobody to add up with")
        total = values + _stream(self._own, len(values))
        for name in self._peers:
            total += _pair(self._scalar, self._keys[name].masks, self.name, name, len(values))
        return total

    def reveal(self, counted: Sequence[int]) -> dict[int, bytes]:
        """Fourth, once: shares of the second masks of those who count, and of the keys of those
        who do not. Never both of one member, and never for fewer than was agreed."""
        if self._revealed:
            raise SecureSumError("a member reveals its shares once: a second list could unmask one")
        if len(set(counted) & (self._peers | {self.name})) < self.fewest:
            raise SecureSumError("too few answers count for a secure sum")
        self._revealed = True
        wanted = set(counted)
        return {name: held[name in wanted] for name, held in self._held.items()}

    def dump(self) -> bytes:
        """All of it, for the same client's next letter. Secret."""
        keys = {n: [k.letters.hex(), k.masks.hex()] for n, k in self._keys.items()}
        held = {n: [one.hex(), other.hex()] for n, (one, other) in self._held.items()}
        secret = [each.hex() for each in (self._letters, self._scalar, self._own)]
        rest = [self._threshold, self.fewest, sorted(self._peers), self._revealed]
        return json.dumps([self.name, secret, keys, held, rest]).encode()

    @classmethod
    def load(cls, dumped: bytes) -> Member:
        """The member that was dumped."""
        name, secret, keys, held, (threshold, fewest, peers, revealed) = json.loads(dumped)
        letters, scalar, own = map(bytes.fromhex, secret)
        return cls(
            name,
            letters,
            scalar,
            own,
            {int(n): Keys(bytes.fromhex(a), bytes.fromhex(b)) for n, (a, b) in keys.items()},
            threshold,
            fewest,
            set(peers),
            {int(n): (bytes.fromhex(a), bytes.fromhex(b)) for n, (a, b) in held.items()},
            revealed,
        )

    def _letter_key(self, name: int) -> bytes:
        return generate_shared_key(_private(self._letters), _loaded(self._keys[name].letters))


def unmasked(
    masked: Mapping[int, Masked],
    keys: Mapping[int, Keys],
    revealed: Sequence[Mapping[int, bytes]],
    threshold: int,
) -> Masked:
    """The server's part: the sum of the answers that count, from masked ones and shares. ``keys``
    are those of all who have masks in it."""
    if len(revealed) < threshold:
        raise SecureSumError(f"{len(revealed)} of {threshold} members needed revealed their shares")
    total = np.sum([*masked.values()], axis=0, dtype=np.uint64)
    length = total.size
    for name in sorted(keys):
        secret = _combined([each[name] for each in revealed if name in each], threshold)
        if name in masked:
            total -= _stream(secret, length)
        else:  # a late one: its masks with each that counts are still in the sum
            if not _is_of(secret, keys[name].masks):
                raise SecureSumError(f"the shares of client {name}'s key make another key")
            for other in masked:
                total += _pair(secret, keys[other].masks, name, other, length)
    return np.asarray(total)


def _combined(shares: Sequence[bytes], threshold: int) -> bytes:
    if len(shares) < threshold or any(len(share) != SHARE for share in shares):
        raise SecureSumError("shares of a member's secret are missing")
    try:
        secret = combine_shares(list(shares[:threshold]))
    except ValueError:
        secret = b""
    if len(secret) != 32:
        raise SecureSumError("shares of a member's secret do not fit together")
    return secret


def _is_of(scalar: bytes, point: bytes) -> bool:
    """Whether a key that was put together from shares is the private one of a public key: one who
    sealed other shares would spoil the sum, or there is no key with such a number."""
    try:
        found = _private(scalar).public_key()
    except ValueError:
        return False
    return found.public_numbers() == _loaded(point).public_numbers()


def well_formed(keys: Keys) -> bool:
    """Whether they are keys at all."""
    try:
        return all(map(_loaded, (keys.letters, keys.masks)))
    except (ValueError, TypeError):
        return False


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
    least = threshold or threshold_of(len(names))
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
