"""Authentication of callers: tokens, session cookies, client certificates; login, token and user endpoints, kubeconfigs.

Where the management API is a foreign Kubernetes, access reviews decide on permissions (:mod:`.access_review`). Code that shows
objects to users reads them through clients that act for these users (:mod:`.user_clients`).
Not here: users and tokens as objects (`access.users`), rules about roles (`access.roles`), reading a token from headers and
cookies (`gateway.server.credentials`).
Read :mod:`.authenticator` first.
"""
