"""Pods and the pod templates of everything that makes pods: defaults, validation, warnings, columns.

`pod` is the strategy of the kind itself; `spec` checks a whole PodSpec out of `containers`, `volumes`, `scheduling`,
`security_context`, `downward_api`.
Workload kinds (`../apps`, `../batch`) call `spec` and `defaults`. Begin with `spec`.
"""
