"""The core group without pods: one module per kind; `service_addresses` allocates, `resource_quantities` reads ResourceLists.

`internal_types` prints values as kube-apiserver's internal Go structs do, for the few errors that show them.
Not here: pods and pod templates (`../pods/`). Read `namespace` first.
"""
