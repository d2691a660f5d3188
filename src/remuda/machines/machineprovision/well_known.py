"""The names and labels of the objects for a machine's Jobs, byte for byte Rancher's (docs/reference/machines.md#objects-of-a-job,
docs/reference/machines.md#job).

Objects are found again by computing their names, so these must never change.
"""

from __future__ import annotations

import hashlib
from typing import Final

from remuda.kube.objects import GroupVersionResource
from remuda.kube.wrangler import safe_concat

CONTROLLER: Final = "machine-provision"
FINALIZER: Final = "wrangler.cattle.io/machine-provision-remove"

JOBS: Final = GroupVersionResource("batch", "v1", "jobs")
PODS: Final = GroupVersionResource("", "v1", "pods")
CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")


# Labels of a Job and its pod.
INFRA_GROUP: Final = "rke.cattle.io/infra-machine-group"
INFRA_VERSION: Final = "rke.cattle.io/infra-machine-version"
INFRA_KIND: Final = "rke.cattle.io/infra-machine-kind"
INFRA_NAME: Final = "rke.cattle.io/infra-machine-name"
INFRA_REMOVE: Final = "rke.cattle.io/infra-remove"
CAPI_MACHINE: Final = "rke.cattle.io/capi-machine-name"

# Annotations.
FORCE_REMOVE: Final = "provisioning.cattle.io/force-machine-remove"
FILE_ALIASES: Final = "nodedriver.cattle.io/file-to-field-aliases"
# Ours. On an infrastructure machine: the uid of the one Job that machineprovision made for it. As long as it is there, there may
# be more that was made for the Job.
JOB_UID: Final = "remuda.dev/provision-job"
# Ours. A label on the records of past attempts, to find them.
ATTEMPTS: Final = "remuda.dev/machine-attempts"
LOG: Final = "remuda.dev/machine-log"

STATE_TYPE: Final = "rke.cattle.io/machine-state"
STATE_KEY: Final = "extractedConfig"
# The runner of Jobs without pods: Kubernetes' own controller ignores Jobs that name another manager (spec.managedBy).
LOCAL_RUNNER: Final = "remuda.dev/job-runner"
# A Role that others may create, for drivers that need more (a pod driver); it is optional.
EXTENSION_ROLE: Final = "rke2-machine-provisioner"


def job_name(infra: str) -> str:
    """The Job of an infrastructure machine, its ServiceAccount, Role, RoleBinding, and the Secret with its files."""
    return safe_concat(infra, "machine", "provision")


def environment_name(infra: str) -> str:
    return safe_concat(infra, "machine", "driver", "secret")


def state_name(infra: str) -> str:
    """The Secret in which the program keeps the state of its machine, SSH keys included."""
    return safe_concat(infra, "machine", "state")


def certificates_name(infra: str) -> str:
    return safe_concat("machine", "certs", hashlib.sha256(infra.encode()).hexdigest()[:32])


def log_name(infra: str) -> str:
    """The ConfigMap with the last lines that a local Job of this machine wrote."""
    return safe_concat(infra, "machine", "log")


def attempts_name(cluster: str, pool: str) -> str:
    """The ConfigMap with the attempts for the machines of a pool."""
    return safe_concat(cluster, pool, "machine", "attempts")
