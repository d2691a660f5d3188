"""Users, actions, and RBAC: which stored roles and bindings allow a user's action.

`rbac.Rbac` decides from any `kube.objects.ObjectSource`: the embedded API's cache, or informers on another Kubernetes.
Not here: authentication, default roles and escalation (`apiserver/auth/`), Rancher's roles (`access/roles/`).
Begin with `actions`.
"""
