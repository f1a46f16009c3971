"""Numeric libraries compute in one thread."""

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from common.threads import one_thread


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info()}


def test_libraries_compute_in_one_thread_until_the_context_ends() -> None:
    np.linalg.inv(np.eye(2))
    with threadpool_limits(2):
        before = threads()
        with one_thread():
            assert threads() == {1}
        assert threads() == before == {2}
