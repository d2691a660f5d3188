"""The core group without pods: one module per kind; `service_addresses` allocates addresses and ports of Services.

Not here: pods and pod templates (`../pods/`). Read `namespace` first.
"""
