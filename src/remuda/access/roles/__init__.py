"""Roles: permissions on this server, and inside each cluster.

`role_rules` and `binding_subjects` are pure; `builtin_roles`, `globalroles`, `cluster_access`,
`downstream_access` and `cluster_memberships` are the controllers, with the caches of `role_caches`; `rbac_writer` writes the
results; `admission` refuses writes that give more than the writer has (`holdings`).
Not here: how a user is identified (`gateway/auth`), RBAC itself (`kube/authorization`). Read :mod:`.role_rules` first.
"""

from .holdings import InformerSource

__all__ = ["InformerSource"]
