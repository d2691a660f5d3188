"""Users, their passwords and their tokens: how they are made, stored, checked and cleaned up.

Pure: `user_objects`, `tokens`, `token_hashes`. `passwords` also keeps the hashes in Secrets, `first_user`
makes the first administrator, `controllers` deletes tokens that have expired or lost their user, and `admission` checks writes.
Not here: how a caller shows a token or logs in (`gateway/auth`).
Read :mod:`.user_objects`, then :mod:`.tokens`.
"""
