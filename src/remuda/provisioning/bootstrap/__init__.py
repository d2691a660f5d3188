"""The bootstrap provider: the objects a Machine needs before its host can register.

`rkebootstrap` is the controller; `machine_objects` builds the plan Secret, the ServiceAccounts and the bootstrap
data.
`service_account_tokens` and `bootstraptoken` handle the tokens in install scripts.
Not here: the registration itself (`nodes`), the plan (`planner`).
Read :mod:`.rkebootstrap` first.
"""
