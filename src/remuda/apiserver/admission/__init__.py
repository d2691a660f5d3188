"""The admission chain: default plug-ins, rules of our own types in process (`chain.Hooks`), mutating and validating webhooks.

Plug-ins get `kube.admission_attributes`; our rules are `runtime.admitted_types`, installed by `chain.install`.
Webhooks: `webhook_matching` (selection), `webhook_reviews` (request and response), `webhooks` (the calls).
Not here: the HTTP client of webhooks (`..webhook_client`), authorization (`..auth`).
Begin with `chain`.
"""
