"""Roles: permissions on this server, and inside each cluster.

`role_rules`, `binding_subjects`, `builtin_roles` and the `*_desired` modules decide (pure); `globalroles`, `cluster_access`,
`downstream_access`, `cluster_memberships` and `user_bindings` are the controllers; `rbac_writer` writes the results;
`admission` refuses writes that give more than the writer has (`holdings`).
Not here: how a user is identified (`gateway/auth`), RBAC itself (`kube/authorization`). Read :mod:`.role_rules` first.
"""

from .globalrole_desired import new_user_roles
from .holdings import InformerSource

__all__ = ["InformerSource", "new_user_roles"]
