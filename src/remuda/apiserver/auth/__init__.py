"""Authentication and authorization of requests: certificates, service-account tokens, impersonation, default roles,
escalation, review APIs.

`authenticator` asks each credential's module who it is; RBAC itself is `kube.authorization.rbac`; `reviews` answers
SubjectAccessReview and its kin.
Users, logins and Rancher's tokens are `access/` and `gateway/auth/`. Begin with `authenticator`.
"""
