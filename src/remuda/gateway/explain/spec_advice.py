"""Advice on what the spec of a cluster says, and on the objects that it names. Pure.

:mod:`.wait_advice` chooses among them by the code of a wait, and has all others.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from remuda.kube.objects import Key, dig, labels_of, name_of
from remuda.kube.waits import Wait
from remuda.provisioning.planner.waits import IMAGE_MISSING, IMAGE_REFUSED, VALUE_REFUSED
from remuda.provisioning.well_known import CONFIG_GROUP, CONTROL_PLANE_ROLE, ETCD_ROLE

from .states import ClusterView


@dataclass(frozen=True, slots=True)
class Advice:
    """`text` is for people; MACHINE stands for the name of what waits, since the same is often to be done about many.

    `commands` can be run as they are, in their order, on the machine of the reader. Texts of waits may quote hosts and tenants:
    a command takes from them only words of harmless characters.
    """

    text: str
    commands: tuple[str, ...] = ()


_KNOWN = re.compile(r"known: ([A-Za-z0-9.+-]+(?:, [A-Za-z0-9.+-]+)*)\)")


def version(wait: Wait, sight: ClusterView, general: str) -> Advice | None:
    """`general` is the advice on any wait for release data; the command has a version that may be chosen."""
    named = _KNOWN.search(wait.evidence)
    if named is None:
        return None
    patch = shlex.quote('{"spec":{"kubernetesVersion":"' + _allowed_version(named[1].split(", "), sight) + '"}}')
    return Advice(general, (f"{_patch_cluster(sight)} --type merge -p {patch}",))


def _allowed_version(known: list[str], sight: ClusterView) -> str:
    """The newest known version that the cluster may be changed to: of the minor version that its servers run, if they run any."""
    runs = max(_versions_of_servers(sight), key=_numbers, default="")
    if not runs:
        return known[-1]
    return max((each for each in known if _numbers(each)[:2] == _numbers(runs)[:2]), key=_numbers, default=runs)


def _versions_of_servers(sight: ClusterView) -> Iterable[str]:
    servers = (each for each in sight.machines if {ETCD_ROLE, CONTROL_PLANE_ROLE} & labels_of(each).keys())
    found = [dig(each, "status", "nodeInfo", "kubeletVersion") for each in servers]
    found.append(dig(sight.plane or {}, "status", "appliedSpec", "kubernetesVersion"))
    return (each for each in found if isinstance(each, str) and _VERSION.fullmatch(each))


_VERSION: Final = re.compile(r"v[0-9]{1,9}(?:\.[0-9]{1,9}){2}[A-Za-z0-9.+-]*")


def _numbers(version: str) -> list[int]:
    """The numbers of a version, of which the first two are its minor version."""
    return [int(each) for each in re.findall(r"[0-9]{1,9}", version)]


_UNAUTHORIZED: Final = re.compile(
    r"is not authorized for the cluster ([a-z0-9.-]+): its annotation ([a-z0-9./-]+) does not name it"
)


def unauthorized(wait: Wait) -> Advice | None:
    """An object that a spec names, and whose owner has not allowed the cluster to have it."""
    named = _UNAUTHORIZED.search(wait.evidence)
    if named is None or wait.on is None:
        return None
    kind, name = wait.on.kind.lower(), wait.on.name
    where, path = f"kubectl -n {wait.on.namespace}", "{.metadata.annotations." + named[2].replace(".", "\\.") + "}"
    others = f"$({where} get {kind} {name} -o jsonpath='{path}')"
    text = f"If the hosts of the cluster may have what is in {wait.on.kind} {name}, allow it as the command does."
    return Advice(text, (f'{where} annotate --overwrite {kind} {name} {named[2]}="{others},{named[1]}"',))


_FIELD: Final = re.compile(rf"{re.escape(VALUE_REFUSED)} (spec(?:\.[A-Za-z0-9-]+(?:\[[0-9]{{1,3}}\])?)+)")


def refused_value(wait: Wait, sight: ClusterView) -> Advice | None:
    named = _FIELD.search(wait.evidence)
    if named is None:
        return None
    steps = [int(step) if step.isdigit() else step for step in re.findall(r"[A-Za-z0-9-]+", named[1])]
    text = (
        f"Correct {named[1]} of the cluster, or remove it as the command does: then its default holds, and the plan is made anew."
    )
    if dig(sight.wanted, *steps) is None:
        # It has been changed meanwhile.
        return Advice(text)
    pointer = "".join(f"/{step}" for step in steps)
    patch = shlex.quote(json.dumps([{"op": "remove", "path": pointer}], separators=(",", ":")))
    return Advice(text, (f"{_patch_cluster(sight)} --type json -p {patch}",))


def _patch_cluster(sight: ClusterView) -> str:
    return f"kubectl -n {workspace_of(sight)} patch clusters.provisioning.cattle.io {name_of(sight.wanted)}"


_ACTIVATION = re.compile(r"""kubectl patch nodedriver [a-z0-9.-]+ --type merge -p '\{"spec":\{"active":true\}\}'""")


_IMAGE_ADVICE: Final = (
    "Check that the host reaches the registry that the text names, that it has the image, and spec.rkeConfig.registries with its "
    "Secret. It is tried again automatically."
)


# An object that was replaced, or whose author may not read it any more; and an address of a machine config.
_ACCEPTANCE: Final = re.compile(
    r"annotation (remuda\.dev/accept-references)=true on the (?:cluster\b|([A-Za-z0-9]{1,63}Config) ([a-z0-9.-]{1,253}))"
)


def _acceptance(wait: Wait, sight: ClusterView) -> Advice | None:
    named = _ACCEPTANCE.search(wait.evidence)
    if named is None:
        return None
    annotation, kind, name = named.groups()
    what = f"{kind.lower()}.{CONFIG_GROUP} {name}" if kind else f"clusters.provisioning.cattle.io {name_of(sight.wanted)}"
    command = f"kubectl -n {workspace_of(sight)} annotate {what} {annotation}=true"
    return Advice(
        "If the cluster may use it, accept it as the command does: it takes a user who may read it. Else name another.",
        (command,),
    )


def reference(wait: Wait, sight: ClusterView) -> Advice | None:
    if (found := _acceptance(wait, sight)) is not None:
        return found
    if IMAGE_MISSING in wait.evidence or IMAGE_REFUSED in wait.evidence:
        return Advice(_IMAGE_ADVICE)
    command = _ACTIVATION.search(wait.evidence)
    if command is None:
        return None
    return Advice("Activate the node driver, or choose a machine config of another one.", (command[0],))


def workspace_of(sight: ClusterView) -> str:
    return Key.of(sight.wanted).namespace
