"""Ctrl-C and the request to end, as a command takes them: stop now, or finish first what is under way."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import attrs

from payments_async._cli.screen import Screen
from payments_async._cli.standard_output import tell_always

T = TypeVar("T")
_STOPPING = "stopping: what is under way is finished first; once more breaks it off"
_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt`` in this block alone, as asyncio needs it to end a loop in good order.

    Before it, whoever started this process says what Ctrl-C does. After it nothing does: the outcome is known, and is
    all that is left to be said.
    """
    if threading.current_thread() is not threading.main_thread():  # where there are no signals
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


async def to_its_end(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do some work; once it is done, Ctrl-C does nothing any more: it would break off the closing of the loop."""
    try:
        return await work()
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def on_signals(asked: Callable[[], object], *, hung_up: Callable[[], object] | None = None) -> Iterator[None]:
    """Call this instead of ending. Where there are no such handlers, Ctrl-C raises ``KeyboardInterrupt`` as ever.

    Args:
        hung_up: Called where the terminal was closed, which the system and a shell may both say; never under ``nohup``.
            By default ``asked``.
    """
    loop, handlers = asyncio.get_running_loop(), dict.fromkeys(_NUMBERS, asked)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        handlers[signal.SIGHUP] = hung_up or asked
    with suppress(NotImplementedError, ValueError, RuntimeError):  # no such handlers there, or not in this thread
        for number, call in handlers.items():
            loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            for number in handlers:
                loop.remove_signal_handler(number)


async def until_stopped() -> None:
    """Wait for Ctrl-C or a request to end."""
    stopped = asyncio.Event()
    with on_signals(stopped.set):
        await stopped.wait()


@attrs.define
class Stop:
    """What somebody asked for while a run was under way.

    Attributes:
        drain: Finish what is under way, and begin nothing more.
        is_hard: Break off what is under way.
    """

    drain: asyncio.Event = attrs.field(factory=asyncio.Event)
    is_hard: bool = False


@contextmanager
def draining(screen: Screen) -> Iterator[Stop]:
    """Take the signals: the first one drains, the second one breaks off this block and nothing around it.

    A terminal that is closed drains alone, however often that is said.
    """
    stop, task = Stop(), asyncio.current_task()
    tell_always()
    tell = screen.say if screen.is_live else screen.note  # a live view draws around what the same console prints

    def asked() -> None:
        if not stop.drain.is_set():
            stop.drain.set()
            tell(_STOPPING)
        elif not stop.is_hard and task is not None:
            stop.is_hard = True
            task.cancel()

    with on_signals(asked, hung_up=stop.drain.set):
        try:
            yield stop
        except asyncio.CancelledError:
            if not stop.is_hard or task is None:
                raise
            task.uncancel()  # the cancellation was ours and has done its work
