"""What tells the writes of several servers apart, for a store that can only compare bytes."""

from __future__ import annotations

from remuda.kube.clock import Entropy


class Signs:
    """A few spaces and the like behind each value: no two writes of any servers are the same to the byte.

    A store that lost the answer to a write looks for its bytes in what has happened since. If two servers had written the same
    ones, both would take the write for their own, and one of two clients that count up would count for nothing.
    """

    _BLANKS = (b" ", b"\t", b"\r", b"\n")

    def __init__(self, entropy: Entropy) -> None:
        self._table = [b"".join(self._BLANKS[byte >> shift & 3] for shift in (6, 4, 2, 0)) for byte in range(256)]
        self._own = b"".join(self._table[byte] for byte in entropy.token_bytes(4))
        self._count = 0

    def next(self) -> bytes:
        self._count = count = (self._count + 1) & 0xFFFF
        return self._own + self._table[count >> 8] + self._table[count & 255]
