"""Ctrl-C as a polite request: the first asks for a stop, the second is not asked.

A request to terminate (what a cluster sends before it takes a machine back) is heard alike.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

DEFAULTS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Within, a first signal does nothing but make the yielded function true.

    A signal that the program has its own use for, or that its parent had ignored (nohup, a
    script's background job), is left alone. Python lets only the main thread have handlers: in
    another, the function is never true.
    """
    received: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    ours = [n for n, default in DEFAULTS.items() if main and signal.getsignal(n) == default]

    def restore() -> None:
        for number in ours:
            signal.signal(number, DEFAULTS[number])

    def hear(number: int, frame: FrameType | None) -> None:
        restore()
        received.append(number)

    for number in ours:
        signal.signal(number, hear)
    try:
        yield lambda: bool(received)
    finally:
        restore()
