"""Authentication and authorization of requests: certificates, service-account tokens, impersonation, default roles,
escalation, review APIs.

`authenticator` calls the module of each kind of credential; RBAC itself is `kube.authorization.rbac`; `reviews` answers
SubjectAccessReview and similar requests.
Users, logins and Rancher's tokens are `access/` and `gateway/auth/`. Begin with `authenticator`.
"""
