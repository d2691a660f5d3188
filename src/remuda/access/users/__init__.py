"""Users, their passwords and their tokens: how they are kept, made, judged, and cleaned up after.

:mod:`.user_objects`, :mod:`.tokens`, :mod:`.token_hashes` and :mod:`.passwords` are pure; :mod:`.password_secrets` has the
Secrets of passwords, :mod:`.first_user` makes the first administrator, :mod:`.controllers` let tokens go, and :mod:`.admission`
says what may be written of either kind. How a caller shows a token, and how one logs in, is the gateway's business
(:mod:`remuda.gateway.auth.identity`).
"""
