"""Pieces of work on threads of their own: order, errors, gradients, and that they leave the caller alone."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from identica.kernels import workers
from identica.kernels.tiled import log_partition_tiled
from identica.similarities import Kernel


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_order_and_from_other_threads() -> None:
    here = threading.get_ident()
    found = workers.run([lambda i=i: (i, threading.get_ident()) for i in range(20)])  # type: ignore[misc]
    assert [i for i, _ in found] == list(range(20))
    assert here not in {thread for _, thread in found}


def test_with_one_thread_everything_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert workers.run([threading.get_ident] * 2) == [threading.get_ident()] * 2


def test_errors_reach_the_caller() -> None:
    def fail() -> None:
        raise RuntimeError("this piece failed")

    with pytest.raises(RuntimeError, match="this piece failed"):
        workers.run([fail, fail])


def test_workers_do_not_split_operations_and_the_caller_still_does() -> None:
    workers._forget()  # so that the pool starts anew, from this thread's settings
    for threads in (2, 3):
        torch.set_num_threads(threads)
        assert workers.run([torch.get_num_threads] * 3) == [1, 1, 1]
        assert torch.get_num_threads() == threads
    new_thread: list[int] = []
    thread = threading.Thread(target=lambda: new_thread.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert new_thread == [3], "a thread that starts later is not limited"


def test_it_does_not_matter_which_worker_does_what() -> None:
    """Workers from before and after a change of settings multiply matrices alike, to the bit."""
    workers._forget()
    a, b = torch.randn(5, 64), torch.randn(64, 64)

    def product() -> torch.Tensor:
        time.sleep(0.01)  # so that every worker gets a turn
        return a @ b

    found = workers.run([product] * 2)
    torch.set_num_threads(4)
    found += workers.run([product] * 8)
    assert all(torch.equal(x, found[0]) for x in found)


def test_no_gradients_are_recorded() -> None:
    assert workers.run([torch.is_grad_enabled] * 2) == [False, False]
    assert workers.run([torch.is_grad_enabled]) == [False]
    assert torch.is_grad_enabled()


def test_as_many_workers_as_torch_may_use_threads() -> None:
    for threads, expected in ((1, 1), (3, 3), (64, workers.MOST_WORKERS)):
        torch.set_num_threads(threads)
        assert workers.available_workers() == expected


@pytest.mark.parametrize("kernel", [Kernel("dot"), Kernel("lp", 3.0)], ids=lambda k: k.name)
def test_the_number_of_workers_changes_nothing_but_rounding(kernel: Kernel) -> None:
    def value_and_gradient(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        a = torch.randn(300, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
        value = log_partition_tiled(a, a, kernel, exclude_diagonal=True, tile=(64, 64), workers=count).log_partition
        value.sum().backward()
        assert a.grad is not None
        return value.detach(), a.grad

    torch.testing.assert_close(value_and_gradient(5), value_and_gradient(1))
    assert all(torch.equal(x, y) for x, y in zip(value_and_gradient(5), value_and_gradient(5), strict=True))


def _in_a_child(queue: multiprocessing.Queue[list[int]]) -> None:
    queue.put(workers.run([partial(int, 1), partial(int, 2)]))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_gets_workers_of_its_own() -> None:
    assert workers.run([partial(int, 1), partial(int, 2)]) == [1, 2]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_a_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == [1, 2]
    child.join(timeout=60)
    assert child.exitcode == 0
