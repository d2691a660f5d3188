"""Parts of one request on the listener: path and header checks, routing, CSRF, rate limits, the audit log, the serving
certificate, the image registry, Norman's wire format.

Not here: the request's way through them (`..handler`), login (`..auth`), proxying (`..proxy`).
Parts of the gateway get :class:`.dependencies.Services` and add their routes to it.
Read :mod:`.routing` first.
"""
