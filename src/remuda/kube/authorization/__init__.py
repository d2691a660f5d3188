"""Users, actions, and RBAC: who wants to do what, and which stored roles and bindings allow it.

`rbac.Rbac` decides from any `kube.object_reader`: the embedded API's cache, or informers on another Kubernetes.
How a user is found out (tokens, certificates), default roles and escalation are `apiserver/auth/`; Rancher's roles are
`access/roles/`.
Begin with `actions`.
"""
