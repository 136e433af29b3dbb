from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from policies import retries
from policies.retries import Retry, TransientError, with_retries

if TYPE_CHECKING:
    import pytest


def test_what_goes_on_failing_is_told_about_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_told", {})
    left = [3] * 5  # five requests at once, each fails three times

    async def request(number: int) -> int:
        async def call(_seconds: float) -> int:
            if left[number]:
                left[number] -= 1
                raise TransientError("nobody answers", wait=0.0)
            return number

        return await with_retries(call, Retry(), "http://localhost:9")

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*map(request, range(5)))

    assert asyncio.run(all_of_them()) == list(range(5))
    (record,) = caplog.records
    assert record.getMessage() == "http://localhost:9 failed 2 times, and is tried up to 8 times: nobody answers"


def test_one_failure_is_not_told_about(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_told", {})
    answers = [TransientError("busy", wait=0.0), 7]

    async def call(_seconds: float) -> int:
        answer = answers.pop(0)
        if isinstance(answer, TransientError):
            raise answer
        return answer

    assert asyncio.run(with_retries(call, Retry(), "a server")) == 7
    assert not caplog.records
