"""Numeric libraries compute in one thread."""

import os
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from common.threads import one_thread

LATER = """
import numpy
from threadpoolctl import threadpool_info
from common.threads import one_thread
with one_thread():
    before = threadpool_info()
import scipy.linalg
with one_thread():
    after = threadpool_info()
assert len(after) > len(before), "no library was loaded in between"
print([pool["num_threads"] for pool in after])
"""


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info()}


def test_libraries_compute_in_one_thread_until_the_context_ends() -> None:
    np.linalg.inv(np.eye(2))
    with threadpool_limits(2):
        before = threads()
        with one_thread():
            assert threads() == {1}
        assert threads() == before == {2}


@pytest.mark.slow
def test_a_library_that_is_loaded_later_computes_in_one_thread_too() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", LATER], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(eval(done.stdout)) == {1}
