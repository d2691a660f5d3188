"""Authentication of callers: tokens, session cookies, client certificates; login, token and user endpoints, kubeconfigs.

Users and tokens as objects are `access.users`; rules about roles are `access.roles`.
Where the management API is a foreign Kubernetes, access reviews decide on permissions (:mod:`.access_review`).
Read :mod:`.authenticator` first.
"""
