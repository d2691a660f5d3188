"""Commands that run until they are stopped: serve, controllers, gateway, cluster-agent, kube-api-auth, distro, provision; and
what such a process needs: the event loop, signals and systemd (:mod:`.event_loop`), logs (:mod:`.logs`).

What a program runs is in `app`; here are its options and the sentences for its failures. The cluster agent's image holds a part
of this folder: keep imports inside functions. Read :mod:`.serve` first.
"""
