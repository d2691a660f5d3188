"""Watches and selections: matching of objects, delivery of changes to watchers, and lists of which the caller
may see a part.

`watchers` delivers changes, `selection` matches labels and fields, `filtered_list` restricts both to what RBAC allows by name.
A watch starts in `verbs/watch`, its bytes are made in `http/watch_stream`, the changes come from `cache/`. Begin with `watchers`.
"""
