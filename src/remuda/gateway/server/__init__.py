"""The listener side of every request: path and header checks, routing, CSRF, rate limits, the audit log, the serving
certificate, public endpoints, Norman's wire format.

Not here: login (`..auth`), proxying (`..proxy`).
Parts get :class:`.dependencies.Services` and add their routes to it.
Read :mod:`.handler`, then :mod:`.request_context` and :mod:`.routing`.
"""
