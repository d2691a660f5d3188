"""The watch cache: every stored object in memory as bytes, and recent changes per resource. All reads are served from it.

`watch_cache` follows the store's watch, `resource_cache` holds one resource sorted by key, `entries` one object;
`entries.Detector` finds, in tests, changes of shared objects.
Not here: watchers (`watch/`), the store (`storage/`). Begin with `watch_cache`.
"""
