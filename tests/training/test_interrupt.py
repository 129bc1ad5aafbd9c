"""Signals: the first asks, the second is Python's own, and what is not ours is left alone."""

import os
import signal
import threading

import pytest

from milepost.training.interrupt import stop_requests


@pytest.fixture(autouse=True)
def python_handlers() -> object:
    """What a program started from a terminal has, whatever started this one."""
    before = [signal.signal(signal.SIGINT, signal.default_int_handler)]
    yield
    signal.signal(signal.SIGINT, before[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_requests() as requested:
        assert not requested()
        os.kill(os.getpid(), number)
        assert requested()
        assert signal.getsignal(number) == before
    assert signal.getsignal(number) == before


def test_the_second_interrupt_is_not() -> None:
    with stop_requests():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_are_restored_without_a_signal() -> None:
    with stop_requests():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_with_another_use_keeps_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_requests() as requested:
        signal.raise_signal(signal.SIGINT)
        assert not requested()


def test_other_threads_have_no_handlers() -> None:
    answers: list[bool] = []

    def work() -> None:
        with stop_requests() as requested:
            answers.append(requested())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers == [False]
