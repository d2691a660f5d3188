"""As in `tests/api`, through the proxy."""

from tests.api.test_kubectl_follow import *  # noqa: F403
