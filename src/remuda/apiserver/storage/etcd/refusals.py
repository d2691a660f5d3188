"""What etcd says when it says no."""

from __future__ import annotations

from ..store import StoreError
from .messages import UNREADABLE, GatewayError, decoder

# gRPC's codes.
DEADLINE, NOT_FOUND, EXHAUSTED, OUT_OF_RANGE, UNAVAILABLE = 4, 5, 8, 11, 14
_DENIED = (7, 16)


class Refused(StoreError):
    """etcd said no; `code` is gRPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def refused(body: bytes) -> Refused:
    try:
        found = decoder(GatewayError).decode(body)
    except UNREADABLE:
        return Refused(UNAVAILABLE, body[:200].decode(errors="replace") or "it refuses without a word")
    return refusal_of(found)


def refusal_of(found: GatewayError) -> Refused:
    code, text = found.grpc_code or found.code, found.message or found.error
    if code == EXHAUSTED and "space" in text:
        text = f"{text}: compact and defragment it, raise its quota, then run etcdctl alarm disarm"
    elif code in _DENIED:
        text = f"etcd does not let us in: {text}"
    return Refused(code, text)
