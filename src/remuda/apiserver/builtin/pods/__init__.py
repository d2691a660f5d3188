"""Pods and the pod templates of all workload kinds: defaults, validation, warnings, columns.

`pod` is the strategy of the kind itself; `spec` checks a whole PodSpec with `containers`, `volumes`, `scheduling`,
`security_context`, `downward_api`. Workload kinds (`../apps`, `../batch`) call `spec` and `defaults`. Not here: binding and
eviction (`verbs/pod_subresources`). Begin with `spec`.
"""
