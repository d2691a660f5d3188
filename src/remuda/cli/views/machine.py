"""The view of a machine and of the attempts to make it: for people as lines, for programs as data. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from remuda.gateway.explain import states
from remuda.kube.clock import rfc3339
from remuda.kube.duration import human_age
from remuda.kube.objects import annotations_of, dig, labels_of, name_of, namespace_of
from remuda.machines.machine_access import is_beside_the_server
from remuda.machines.machineprovision.job_outcome import JobAttempt
from remuda.provisioning.planner import certificate_expiry
from remuda.provisioning.well_known import CLONED_FROM_KIND, CLONED_FROM_NAME, MACHINE_GROUP, POOL_NAME

from .output import Column, Output

Obj = dict[str, Any]

ATTEMPT_COLUMNS = (
    Column("MACHINE"),
    Column("ACTION"),
    Column("RESULT"),
    Column("ENDED"),
    Column("REASON"),
    Column("MESSAGE"),
    Column("JOB", wide=True),
)
CERTIFICATE_COLUMNS = (
    Column("MACHINE"),
    Column("CERTIFICATE"),
    Column("SUBJECT"),
    Column("USE"),
    Column("NOT AFTER"),
    Column("DAYS"),
    Column("NODE", wide=True),
)
_WIDTH = 10


@dataclass(frozen=True, slots=True)
class MachineView:
    """A Machine and, of one that a driver made, the objects that belong to it."""

    obj: Obj
    infra: Obj | None = None
    template: Obj | None = None
    job: Obj | None = None
    attempts: tuple[JobAttempt, ...] = ()


def certificates_data(machines: Iterable[Obj], now: float) -> list[Obj]:
    """The certificates of the machines' hosts, those that expire first at the top."""
    found = [
        {
            "machine": name_of(machine),
            "node": str(dig(machine, "status", "nodeRef", "name") or ""),
            "certificate": each.file,
            "subject": each.subject,
            "use": each.use,
            "notAfter": rfc3339(each.not_after),
            "daysLeft": certificate_expiry.days_left(now, each.not_after),
        }
        for machine in machines
        for each in certificate_expiry.in_annotations(annotations_of(machine))
    ]
    return sorted(found, key=lambda each: (each["notAfter"], each["machine"], each["certificate"]))


def certificate_rows(data: Iterable[Obj], output: Output) -> list[list[str]]:
    rows = []
    for each in data:
        reached = next((days for days in certificate_expiry.THRESHOLDS if each["daysLeft"] < days), None)
        left = str(each["daysLeft"]) if each["daysLeft"] >= 0 else "expired"
        left = (
            left if reached is None else output.paint(left, "yellow" if reached == max(certificate_expiry.THRESHOLDS) else "red")
        )
        subject, use = each["subject"] or "-", each["use"] or "-"
        rows.append([each["machine"], each["certificate"], subject, use, each["notAfter"], left, each["node"] or "-"])
    return rows


def machine_data(machine: MachineView) -> Obj:
    obj, infra = machine.obj, machine.infra
    marks = annotations_of(machine.template or {})
    ref = dig(obj, "spec", "infrastructureRef") or {}
    return {
        **states.machine_data(obj),
        "cluster": dig(obj, "spec", "clusterName") or "",
        "pool": labels_of(obj).get(POOL_NAME) or "",
        "addresses": list(dig(obj, "status", "addresses") or ()),
        "providerID": dig(obj, "spec", "providerID") or "",
        "infrastructure": {"group": ref.get("apiGroup") or "", "kind": ref.get("kind") or "", "name": ref.get("name") or ""},
        "config": {"kind": marks.get(CLONED_FROM_KIND, ""), "name": marks.get(CLONED_FROM_NAME, "")},
        "failureReason": dig(infra, "status", "failureReason") or "",
        "failureMessage": dig(infra, "status", "failureMessage") or "",
        "job": name_of(machine.job) if machine.job else "",
        "attempts": [msgspec.to_builtins(each) for each in machine.attempts],
    }


def machine_lines(machine: MachineView, now: float) -> Iterable[str]:
    data = machine_data(machine)
    age = human_age(data["created"], now)
    yield f"machine {data['name']}  {data['state']}  in {namespace_of(machine.obj)}  {age}"
    for title, text in _facts(machine, data, now):
        if text:
            yield f"  {title:<{_WIDTH}}{states.one_line(text)}"


def _facts(machine: MachineView, data: Obj, now: float) -> Iterable[tuple[str, str]]:
    pool = f", pool {data['pool']}" if data["pool"] else ""
    yield "cluster", f"{data['cluster']}{pool}"
    yield "roles", ", ".join(data["roles"])
    yield "waits for", data["message"]
    yield "node", " ".join(filter(None, (data["node"], data["version"])))
    yield "addresses", ", ".join(f"{each.get('address')} ({each.get('type')})" for each in data["addresses"])
    yield "provider", data["providerID"]
    infrastructure, config = data["infrastructure"], data["config"]
    yield "made as", " ".join(filter(None, (infrastructure["kind"], infrastructure["name"])))
    yield "config", " ".join(filter(None, (config["kind"], config["name"])))
    yield "job", f"{data['job']} (remuda machine logs {data['name']})" if data["job"] else ""
    # Without what the runner wrote above and below the program's own words.
    words = "\n".join(line for line in data["failureMessage"].splitlines() if not line.startswith("--- "))
    yield "failed", ": ".join(filter(None, (data["failureReason"], words)))
    for each in machine.attempts:
        yield "tried", _tried(each, now)
    if infrastructure["group"] == MACHINE_GROUP and machine.infra is not None:
        there = " (on the server's own machine)" if is_beside_the_server(machine.obj) else ""
        yield "shell", f"remuda ssh {data['name']}{there}"


def _tried(attempt: JobAttempt, now: float) -> str:
    when = f" {human_age(attempt.ended, now)} ago" if attempt.ended else ""
    why = ": ".join(filter(None, (attempt.reason, attempt.message)))
    return f"{attempt.action} {attempt.result}{when}{': ' if why else ''}{why}"


def attempt_rows(attempts: Iterable[JobAttempt], now: float) -> Iterable[list[str]]:
    for each in attempts:
        ended = f"{human_age(each.ended, now)} ago" if each.ended else "-"
        yield [each.machine, each.action, each.result, ended, each.reason or "-", states.one_line(each.message), each.job]
