"""Commands that run until they are stopped: serve, controllers, gateway, cluster-agent, kube-api-auth, distro, provision; and
what such a process needs: the event loop, signals and systemd (:mod:`.event_loop`), logs (:mod:`.logs`).

The modules have the options of a program and the sentences for its failures. The cluster agent's image holds a part of this
folder: keep imports inside functions.
Not here: the parts that a program runs (`app`). Read :mod:`.serve` first.
"""
