"""What happens to every request: path and header checks, routing, CSRF, rate limits, the audit log, the serving certificate,
public endpoints, Norman's wire format.

No login, no proxying; it imports nothing else of the gateway.
Parts get :class:`.dependencies.Services` and add their routes to it.
Read :mod:`.handler`, then :mod:`.request_context` and :mod:`.routing`.
"""
