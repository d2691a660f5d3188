"""The rules of the kinds that Remuda serves: defaults and checks for each, for all programs that run the controllers."""

from __future__ import annotations

from remuda.access.clusters.admission import admitted as admitted_clusters
from remuda.access.roles.admission import RoleRules
from remuda.access.roles.holdings import Holdings
from remuda.access.roles.protected_cluster_fields import ClusterRules
from remuda.access.settings.controller import admitted as admitted_choices
from remuda.access.unused_fields import admitted as admitted_unused
from remuda.access.users.admission import admitted as admitted_identity
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.clock import SYSTEM_CLOCK, Clock
from remuda.kube.objects import ObjectSource
from remuda.machines.admission import admitted as admitted_machines
from remuda.machines.nodedrivers.admission import admitted as admitted_drivers
from remuda.machines.nodedrivers.admission import admitted_credentials
from remuda.machines.secretfields.admission import admitted as admitted_sealing
from remuda.machines.secretfields.vault import Vault
from remuda.provisioning.admission.change_budgets import admitted as admitted_budgets
from remuda.provisioning.admission.clusters import admitted as admitted_wishes
from remuda.provisioning.admission.provider_objects import admitted as admitted_providers
from remuda.provisioning.admission.references import admitted as admitted_references
from remuda.provisioning.admission.snapshots import admitted as admitted_snapshots
from remuda.runtime.admitted_types import AdmittedType, merged


def admitted_types(
    source: ObjectSource, rbac: Rbac, vault: Vault, *, secrets: bool = True, clock: Clock = SYSTEM_CLOCK
) -> tuple[AdmittedType, ...]:
    """The defaults and checks for the kinds of `management.cattle.io`, `provisioning.cattle.io`, `rke.cattle.io` and of node
    drivers.

    `source` and `rbac` tell which rights users hold: the server's own, or :class:`~remuda.access.roles.holdings.InformerSource`,
    which has no `secrets`. `vault` keeps the secret fields of machine configs.
    """
    return merged(
        (
            *admitted_choices(),
            *role_rules(source, rbac),
            *admitted_identity(source, rbac, Holdings(source, rbac)),
            *admitted_clusters(),
            *admitted_unused(),
            *admitted_wishes(source),
            *admitted_providers(source),
            *admitted_snapshots(Holdings(source, rbac)),
            *admitted_budgets(),
            *admitted_references(source, rbac, secrets=secrets),
            *admitted_sealing(source, rbac, vault),
            *admitted_machines(source, rbac),
            *admitted_drivers(source, rbac),
            *admitted_credentials(source, rbac, clock),
        )
    )


def role_rules(source: ObjectSource, rbac: Rbac) -> tuple[AdmittedType, ...]:
    """The rules for roles, bindings, and the fields of clusters that only their owners may change."""
    holdings = Holdings(source, rbac)
    return (*RoleRules(holdings).admitted_types(), *ClusterRules(holdings).admitted_types())
