"""The admission chain: default plug-ins, rules of our own types in process (`chain.Hooks`), mutating and validating webhooks.

Plug-ins get `kube.admission_attributes`; our rules are `runtime.admitted_types`, installed by `chain.install`.
Webhooks: `webhook_matching` (selection), `webhook_reviews` (request and response), `webhooks` (the calls); the HTTP client is
`..webhook_client`.
Begin with `chain`.
"""
