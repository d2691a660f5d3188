"""The failure that a driver's program ends its output with, as tests compare it."""

from __future__ import annotations

from remuda.machines.errors import DriverError, Reason


def parsed(said: str) -> DriverError:
    """The failure that a program's output ends with: its last line is `Reason: message`, if it is ours."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if not lines:
        return DriverError(Reason.FAILED, "the program said nothing")
    reason, colon, message = lines[-1].partition(": ")
    known = next((each for each in Reason if each.value == reason), None)
    if colon and known is not None:
        return DriverError(known, message)
    return DriverError(Reason.FAILED, lines[-1])
