"""Text as tokens: a fixed alphabet, so that a token means the same in every subset of the roles."""

from __future__ import annotations

import string

import numpy as np

from srpfl.data.base import IntArray

# All that Shakespeare's plays are written in. Token 0 is none of them: padding, or a character
# that the alphabet lacks.
ALPHABET = "\n !&',-.:;?" + string.digits + string.ascii_letters
TOKENS = 1 + len(ALPHABET)
IGNORED = -100  # a target that does not count, as PyTorch's cross_entropy has it

_TOKEN = np.zeros(129, dtype=np.int64)  # by code point; all that are not ASCII share the last one
_TOKEN[[ord(character) for character in ALPHABET]] = np.arange(1, TOKENS)


def encode(text: str) -> IntArray:
    """The tokens of a text.

    >>> encode("To be").tolist()
    [67, 36, 2, 23, 26]
    >>> encode("é").tolist()
    [0]
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    tokens: IntArray = _TOKEN[np.minimum(codes, 128)]
    return tokens


def decode(tokens: IntArray) -> str:
    """The text of tokens, without what is no character.

    >>> decode(encode("To be, or not"))
    'To be, or not'
    """
    return "".join(ALPHABET[token - 1] for token in tokens if token > 0)


def windows(tokens: IntArray, length: int) -> tuple[IntArray, IntArray]:
    """A text in pieces of ``length``: the characters, and for each of them the next one.

    Together the pieces predict every character but the first once. The last one is padded with
    token 0, and token 0 is never predicted: the target there is -100.

    >>> x, y = windows(encode("abcdef"), 4)
    >>> [decode(piece) for piece in x], [decode(piece) for piece in y]
    (['abcd', 'ef'], ['bcde', 'f'])
    >>> y[1].tolist()
    [27, -100, -100, -100]
    """
    count = -(-max(len(tokens) - 1, 0) // length)
    padded = np.zeros(count * length + 1, dtype=np.int64)
    padded[: len(tokens)] = tokens[: len(padded)]
    x, y = padded[:-1].reshape(count, length), padded[1:].reshape(count, length).copy()
    y[y == 0] = IGNORED
    return x, y
