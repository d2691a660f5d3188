"""Authentication and authorization of requests: certificates, service-account tokens, impersonation, default roles,
escalation, review APIs.

`authenticator` calls the module of each kind of credential; RBAC itself is `kube.authorization.rbac`; `reviews` answers
SubjectAccessReview and similar requests.
Not here: users, logins and Rancher's tokens (`access/`, `gateway/auth/`). Begin with `authenticator`.
"""
