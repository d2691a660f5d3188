"""Users, actions, and RBAC: which stored roles and bindings allow a user's action.

`rbac.Rbac` decides from any `kube.objects.ObjectSource`: the embedded API's cache, or informers on another Kubernetes.
Authentication (tokens, certificates), default roles and escalation are `apiserver/auth/`; Rancher's roles are
`access/roles/`.
Begin with `actions`.
"""
