"""Roles: who may do what on this server, and inside each cluster.

`rules`, `subjects`, `builtin`, `globalaccess`, `clusteraccess` and `downstreamaccess` decide (pure); `globalroles`, `clusters`,
`memberships`, `downstream`, `departed` and `keeping` are the controllers that bring it about; `admission` and `creators` say what
may be written at all, by what `held` finds that somebody holds. `assembly` puts them together.
"""

from .assembly import CONTROLLERS, admitted_types, controllers
from .globalaccess import new_user_roles
from .held import InformerSource

__all__ = ["CONTROLLERS", "InformerSource", "admitted_types", "controllers", "new_user_roles"]
