"""The reason why a machine could not be made or removed, for programs, and a sentence that a user can act on."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The kinds of failure. The value is what a user reads before the message."""

    AUTH_FAILED = "AuthFailed"  # the provider does not know the credentials
    PERMISSION_DENIED = "PermissionDenied"  # it knows them, and they do not suffice
    QUOTA_EXCEEDED = "QuotaExceeded"
    OUT_OF_CAPACITY = "OutOfCapacity"  # the provider has no such machine to give just now
    NOT_FOUND = "NotFound"  # something that the options name does not exist
    CONFLICT = "Conflict"  # something that shall be made exists, and is not ours
    THROTTLED = "Throttled"
    INVALID = "Invalid"  # an option that can't be
    ELSEWHERE = "Elsewhere"  # it is on another server's machine, which has to be asked
    UNAVAILABLE = "Unavailable"  # the provider, or the way to it, is down
    TIMED_OUT = "TimedOut"
    MISSING_PROGRAM = "MissingProgram"  # something is not installed here
    BOOTSTRAP_FAILED = "BootstrapFailed"  # the machine is there, and its script failed
    FAILED = "Failed"


class DriverError(Exception):
    """`message` is a whole sentence without its full stop, with what to do; never with a secret in it.

    `retryable` says that the same call may well work later; `field` names the option that caused it, as in the machine config.
    """

    def __init__(self, reason: Reason, message: str, *, retryable: bool = False, field: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retryable = retryable or reason in (Reason.THROTTLED, Reason.UNAVAILABLE, Reason.OUT_OF_CAPACITY, Reason.TIMED_OUT)
        self.field = field

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


def elsewhere(what: str, there: str, here: str) -> DriverError:
    """The error for a machine that runs on another server's own machine: its state is unknown here, even whether it still
    exists."""
    do = "start that server, or let it lead by stopping the others"
    return DriverError(Reason.ELSEWHERE, f"{what} is at {there}, not at {here}: only the Remuda server there can reach it; {do}")
