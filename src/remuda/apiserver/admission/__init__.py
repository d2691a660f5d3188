"""The admission chain: default plug-ins, rules of our own types in process (`chain.Hooks`), mutating and validating webhooks.

What a plug-in sees is `kube.admission_attributes`; our rules are `runtime.admitted_types`, put in by `chain.install`.
Webhooks: `webhook_matching` (which one), `webhook_reviews` (question and answer), `webhooks` (the calls); the HTTP client is
`..webhook_client`.
Begin with `chain`.
"""
