"""The certificates of a cluster's hosts, and when they expire (docs/reference/operations.md#expiry).

A periodic instruction prints each public certificate of its host (:mod:`.render.certificate_report`). They are read here: a host
may print anything, so that sizes are limited and unreadable lines are left out. What was read is kept in an annotation of the
Machine, from which users' programs take it; a condition and an event warn 90, 30 and 7 days ahead. Judgements; :mod:`.decide`
writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from remuda.kube import certificates
from remuda.kube.clock import rfc3339, time_of
from remuda.kube.encoding import jsonio

from .. import well_known
from . import waits
from .render.certificate_report import NAME
from .snapshot import Condition, Machine

CONDITION = "CertificatesExpiring"
# Days ahead at which users are warned, the most urgent first.
THRESHOLDS = (7, 30, 90)
_DAY = 86_400.0
_MOST, _LONGEST_LINE, _LONGEST_TEXT = 64, 16 << 10, 200


@dataclass(frozen=True, slots=True)
class HostCertificate:
    """`file` is relative to the distribution's directory; `use` is CA, client, server, or both of the last."""

    file: str
    subject: str
    use: str
    not_after: float

    @property
    def is_authority(self) -> bool:
        return self.use == "CA"


@dataclass(frozen=True, slots=True)
class ExpiryWarning:
    """A machine whose first certificate expires soon: the event to write, and the note that it was written."""

    machine: Machine
    note: str
    message: str


def of_machine(machine: Machine) -> tuple[HostCertificate, ...]:
    """The certificates that its host has printed last; while its plan has another task, what was known before."""
    printed = machine.node.periodic.get(NAME) if machine.node else None
    return _printed(printed.stdout) if printed and printed.stdout else in_annotations(machine.annotations)


@lru_cache(maxsize=4096)
def _printed(text: str) -> tuple[HostCertificate, ...]:
    lines = [line.partition(" ") for line in text.splitlines()[:_MOST] if len(line) <= _LONGEST_LINE]
    found = [_read(file, content) for file, _, content in lines]
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.file))


def _read(file: str, content: str) -> HostCertificate | None:
    block = f"-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n"
    certificate = certificates.parse_certificate(block.encode()) if content else None
    if certificate is None:
        return None
    try:
        name, use = certificates.common_name(certificate), certificates.use_of(certificate)
        return _checked(HostCertificate(file, name, use, float(int(certificates.ends(certificate)))))
    except ValueError:
        # An extension that can't be read; the certificate is of no use then.
        return None


def _checked(found: HostCertificate) -> HostCertificate | None:
    """The certificate; None if its texts must not be shown to users."""
    texts = (found.file, found.subject, found.use)
    return found if all(text.isprintable() and len(text) <= _LONGEST_TEXT for text in texts) else None


def in_annotations(annotations: Mapping[str, str]) -> tuple[HostCertificate, ...]:
    """The certificates that a Machine's annotation lists; none if it is malformed."""
    try:
        said: Any = jsonio.loads(annotations.get(well_known.CERTIFICATES) or "[]")
        found = [_listed(each) for each in said[:_MOST]]
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()
    return tuple(each for each in found if each is not None)


def _listed(said: Mapping[str, Any]) -> HostCertificate | None:
    at = time_of(str(said["notAfter"]))
    return None if at is None else _checked(HostCertificate(str(said["file"]), str(said["subject"]), str(said["use"]), at))


def annotation(found: Iterable[HostCertificate]) -> str:
    """The same certificates give the same text."""
    return jsonio.dumps([_as_data(each) for each in found]).decode()


def _as_data(each: HostCertificate) -> dict[str, str]:
    return {"file": each.file, "subject": each.subject, "use": each.use, "notAfter": rfc3339(each.not_after)}


def days_left(now: float, not_after: float) -> int:
    """Whole days; negative once it has expired."""
    return int((not_after - now) // _DAY)


def threshold(now: float, not_after: float) -> int | None:
    """The threshold in days that is reached, 0 if it has expired; None if it lasts longer than all."""
    if not_after <= now:
        return 0
    return next((days for days in THRESHOLDS if not_after - now <= days * _DAY), None)


def condition(now: float, machines: Sequence[Machine]) -> Condition | None:
    """The control plane's condition; None while no host has reported."""
    known = {machine.name: of_machine(machine) for machine in machines if not machine.deleting}
    ends = [(each.not_after, name, each) for name, found in known.items() for each in found]
    if not ends:
        return None
    at, name, first = min(ends, key=lambda end: (end[0], end[1], end[2].file))
    reached = threshold(now, at)
    if reached is None:
        return Condition(CONDITION, "False")
    soon = [end for end in ends if (threshold(now, end[0]) or 0) <= reached and threshold(now, end[0]) is not None]
    names = waits.some_names(sorted({end[1] for end in soon}))
    when = f"{'expired' if reached == 0 else 'expires'} at {rfc3339(at)}"
    text = f"{len(soon)} certificates of {names}, the first {when}: {first.file} of {name} ({first.subject})"
    return Condition(CONDITION, "True", "Expired" if reached == 0 else f"Within{reached}Days", text)


def warning(now: float, machine: Machine) -> ExpiryWarning | None:
    """The warning of a machine that was not yet given, once for each threshold."""
    found = of_machine(machine)
    if not found or machine.deleting:
        return None
    first = min(found, key=lambda each: (each.not_after, each.file))
    reached = threshold(now, first.not_after)
    if reached is None:
        return None
    note = f"{reached} {rfc3339(first.not_after)}"
    if machine.annotations.get(well_known.CERTIFICATE_WARNING) == note:
        return None
    when = "has expired" if reached == 0 else f"expires within {reached} days"
    what = "replace the authority" if first.is_authority else "rotate the cluster's certificates"
    text = f"{first.file} ({first.subject}) {when}, at {rfc3339(first.not_after)}: {what}"
    return ExpiryWarning(machine, note, text)
