"""As in `tests/api`, through the proxy."""

from tests.api.test_kubectl_nodes import *  # noqa: F403
