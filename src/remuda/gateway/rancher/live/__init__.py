"""Live updates: the websocket on which Rancher's pages follow changes of objects, with the permissions of the caller.

:mod:`.subscribe` is a connection with its watches, :mod:`.watch_requests` the messages (pure), :mod:`.object_watch` one watch,
:mod:`.outbox` the messages that wait for a slow client. Not here: the form of an object (:mod:`..resources`), and the route
(:mod:`..steve`). Read :mod:`.subscribe` first.
"""
