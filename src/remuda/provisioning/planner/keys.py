"""Labels and annotations that only the planner reads or writes; the rest of them are in :mod:`remuda.provisioning.well_known`."""

from __future__ import annotations

from typing import Final

from remuda.api.rke_cattle_io import well_known

OS_LABEL: Final = well_known.OPERATING_SYSTEM
INIT_NODE_MACHINE_ID: Final = well_known.INIT_NODE_MACHINE
JOIN_URL_AUTOSET_DISABLED: Final = "rke.cattle.io/join-url-autoset-disabled"

# Ours: how often the plan has failed, and when it is tried again. Rancher never tries again, so it has no name for it.
PLAN_FAILURE: Final = "remuda.dev/plan-failure"

# Ours: when the agent of a machine was last asked whether it is there.
ASKED_AT: Final = "remuda.dev/asked-at"

# Ours: the agent that a host was given in its plan, and what came of it. By the other one, on the control plane, somebody asks
# for another try.
AGENT_UPDATE: Final = "remuda.dev/agent-update"
REDEPLOY_AGENT: Final = well_known.REDEPLOY_AGENT

# On Machines: what lets one go whose node can't be drained.
EXCLUDE_NODE_DRAINING: Final = "machine.cluster.x-k8s.io/exclude-node-draining"
EXCLUDE_VOLUME_DETACH: Final = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
