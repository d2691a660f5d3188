"""Authentication of callers: tokens, session cookies, client certificates; login, token and user endpoints, kubeconfigs.

Users and tokens as objects are `access.users`; rules about roles are `access.roles`.
Where the management API is not ours, rights are asked for by access reviews (:mod:`.access_review`).
Read :mod:`.authenticator` first.
"""
