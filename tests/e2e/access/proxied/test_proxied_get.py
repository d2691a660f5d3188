"""As in `tests/api`, through the proxy."""

from tests.api.test_kubectl_get import *  # noqa: F403
