"""Norman, Rancher's older API `/v3`, for the objects of the management API: a flat form of each, with links and actions.

:mod:`.routes` has its paths. Pure parts: :mod:`.types` (the types, and their fields), :mod:`.objects` (an object in this form,
and back), :mod:`.schemas` (what a caller may do with a type), :mod:`.pages` (filter, sort, limit). :mod:`.credentials` has cloud
credentials, which are Secrets, and :mod:`.principals` users as their login provider knows them. Objects are read and written with
the caller's own client, as in :mod:`..steve`. Not here: users, tokens, kubeconfigs (`auth`), settings and registration tokens
(`registration`), and the form of answers and errors (`server/norman.py`). Read :mod:`.routes` first.
"""
