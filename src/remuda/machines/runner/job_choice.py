"""Which Jobs are run here: those that machineprovision made for a machine that exists, and no others. Pure.

Anybody who may write in a cluster's namespace can make a Job that looks like one of ours. So nothing of a Job counts but which
one it is: the machine names the one Job that was made for it, by uid, and says itself what is to be done; image, command,
arguments, volumes and accounts of the Job are never looked at.
"""

from __future__ import annotations

from typing import Any

from remuda.access.rancher_conditions import UNKNOWN
from remuda.kube.objects import annotations_of, dig, is_being_deleted, name_of, uid_of

from ..machineprovision.job_objects import is_controlled_by
from ..machineprovision.machine_status import CREATE_JOB, DELETE_JOB, status_of
from ..machineprovision.well_known import JOB_UID, LOCAL_RUNNER, job_name

Obj = dict[str, Any]


def is_managed(job: Obj) -> bool:
    """Whether it asks to be run here; others are somebody else's business."""
    return bool(dig(job, "spec", "managedBy") == LOCAL_RUNNER)


def refusal(job: Obj, infra: Obj | None) -> str:
    """Why it is not run (yet); empty when it is."""
    if infra is None:
        return "no machine of a driver owns it"
    if not is_controlled_by(job, infra) or name_of(job) != job_name(name_of(infra)):
        return f"it is not the Job of {infra.get('kind')} {name_of(infra)}"
    if not uid_of(job) or annotations_of(infra).get(JOB_UID) != uid_of(job):
        return f"it was not made for {infra.get('kind')} {name_of(infra)} by this server"
    if is_being_deleted(job):
        return "it is being deleted"
    if wanted(infra) is None:
        return f"nothing is to be done for {infra.get('kind')} {name_of(infra)}"
    return ""


def wanted(infra: Obj) -> bool | None:
    """Whether the machine is to be removed (True) or made (False), as itself says; None: neither."""
    if status_of(infra, DELETE_JOB):
        return True if status_of(infra, DELETE_JOB) == UNKNOWN and is_being_deleted(infra) else None
    return False if status_of(infra, CREATE_JOB) == UNKNOWN else None
