"""PyTorch on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Let each thread that calls PyTorch compute alone.

    The networks are small. PyTorch's own threads wait for each other at every operation, which on a busy machine takes
    many times as long as one thread alone, and sums then depend on the number of cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
