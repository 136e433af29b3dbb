from __future__ import annotations

import os
import random
import select
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from grepseek_env.engine.interrupts import HeldSignals

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stop(BaseException):
    pass


@pytest.fixture(autouse=True)
def _handlers_are_put_back() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    after = [signal.getsignal(number) for number in numbers]
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    assert after == before


def test_an_interrupt_waits_for_the_end() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), HeldSignals():  # noqa: PT012 - what comes after the signal is the point
        signal.raise_signal(signal.SIGINT)
        reached.append("the end")
    assert reached


def test_poll_lets_an_earlier_interrupt_out() -> None:
    with HeldSignals() as signals:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signals.poll(select.poll(), 0)


def test_poll_lets_an_interrupt_out_while_it_waits() -> None:
    with HeldSignals() as signals:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            signals.poll(select.poll(), 60_000)
        timer.join()


def test_a_handler_that_does_not_raise_is_called_and_the_wait_goes_on() -> None:
    seen: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        with HeldSignals() as signals:
            signal.raise_signal(signal.SIGTERM)
            assert seen == []
            assert signals.poll(select.poll(), 0) == []
            assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_held_inside_held_delivers_once() -> None:
    seen: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        with HeldSignals(), HeldSignals():
            signal.raise_signal(signal.SIGTERM)
            assert seen == []
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_other_threads_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    during = []

    def look() -> None:
        with HeldSignals() as signals:
            during.append(signal.getsignal(signal.SIGINT))
            during.append(signals.poll(select.poll(), 0))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert during == [before, []]


def test_handlers_are_put_back_whenever_a_signal_comes() -> None:
    def stop(_number: int, _frame: object) -> None:
        raise Stop

    rng, stopped = random.Random(2), 0
    previous = signal.signal(signal.SIGALRM, stop)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        for _ in range(3000):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 4e-5))
                with HeldSignals():
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                stopped += 1
            assert signal.getsignal(signal.SIGALRM) is stop
            assert signal.getsignal(signal.SIGINT) is interrupt
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert stopped > 10


def test_a_handler_that_raises_at_the_end_leaves_the_others_in_place() -> None:
    def stop(_number: int, _frame: object) -> None:
        raise Stop

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(Stop), HeldSignals():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, previous)
