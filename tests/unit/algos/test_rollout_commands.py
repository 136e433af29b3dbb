"""Commands of many episodes: gathered while others run, and held up by none of them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from algos import rollout_commands
from algos.rollout_commands import Commands
from grepseek_env.backend import open_corpus
from grepseek_env.distributed.open import open_parts
from grepseek_env.distributed.parts import split_corpus
from grepseek_env.engine.local import LocalBackend
from grepseek_env.episode import Pending
from grepseek_env.errors import BackendClosed, CommandRefused, EngineFault
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FOREVER = "awk 'BEGIN { while (1); }'"


class Held(LocalBackend):
    """Notes its batches; the first lasts until it is let go."""

    def __init__(self) -> None:
        super().__init__(open_corpus("world:tiny"))
        self.batches: list[list[str]] = []
        self.go = threading.Event()

    def run_many(self, commands: Sequence[str], **options: Any) -> Any:
        self.batches.append(list(commands))
        if len(self.batches) == 1:
            assert self.go.wait(30)
        return super().run_many(commands, **options)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.setattr(rollout_commands, "usable_cores", lambda: 1)
    with Held() as held:
        yield held
        held.go.set()


def wanted(command: str, most: int = 1000) -> Pending:
    return Pending(command, 60.0, most)


async def until(condition: Any) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be")


def test_what_comes_while_a_batch_runs_is_the_next_batch(backend: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_commands, "_MOMENT", 1000.0)

    async def play() -> list[Any]:
        commands = Commands(backend, 8)
        asked = ["wc -l corpus.jsonl", "wc -w corpus.jsonl", "ls", "rm x", "ls"]
        first = asyncio.ensure_future(commands.run(wanted(asked[0])))
        await until(lambda: backend.batches)
        rest = [asyncio.ensure_future(commands.run(wanted(command))) for command in asked[1:]]
        rest.append(asyncio.ensure_future(commands.run(wanted("cat corpus.jsonl", 7))))
        await asyncio.sleep(0.05)
        assert backend.batches == [asked[:1]]
        backend.go.set()
        results = [await each for each in (first, *rest)]
        commands.close(cancel=False)
        return results

    lines, words, ls, refused, ls_again, head = asyncio.run(play())
    assert backend.batches[1:] == [["wc -w corpus.jsonl", "ls", "rm x"], ["cat corpus.jsonl"]]
    assert lines.stdout.startswith(b"288 ")
    assert words.stdout.startswith(b"%d " % len((open_corpus("world:tiny").view / "corpus.jsonl").read_bytes().split()))
    assert ls == ls_again == CommandResult(b"corpus.jsonl\n", b"", 0)
    assert isinstance(refused, CommandRefused)
    assert len(head.stdout) == 7


def test_a_slow_batch_holds_nobody_up(backend: Held) -> None:
    async def play() -> None:
        commands = Commands(backend, 8)
        slow = asyncio.ensure_future(commands.run(wanted("wc -l corpus.jsonl")))
        await until(lambda: backend.batches)
        assert (await commands.run(wanted("ls"))).stdout == b"corpus.jsonl\n"
        assert not slow.done()
        backend.go.set()
        await slow
        commands.close(cancel=False)

    asyncio.run(play())


def test_closing_stops_what_runs(backend: Held) -> None:
    backend.go.set()

    async def play() -> None:
        commands = Commands(backend, 8)
        slow = asyncio.ensure_future(commands.run(wanted(FOREVER)))
        await until(lambda: backend.batches)
        commands.close(cancel=True)
        assert isinstance(await slow, BackendClosed)

    asyncio.run(play())


def test_closing_stops_what_runs_over_parts(tmp_path: Path) -> None:
    with open_parts(split_corpus(open_corpus("world:tiny"), 2, tmp_path)) as backend:

        async def play() -> None:
            commands = Commands(backend, 8)
            counted = await commands.run(wanted("wc -l corpus.jsonl"))
            assert isinstance(counted, CommandResult)
            assert counted.exit_code == 0
            slow = asyncio.ensure_future(commands.run(wanted(FOREVER)))
            await asyncio.sleep(0.2)
            commands.close(cancel=True)
            assert isinstance(await slow, BackendClosed)

        asyncio.run(play())


def test_a_closed_backend_and_a_bug_reach_who_waits(backend: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    backend.go.set()

    async def play() -> None:
        commands = Commands(backend, 8)
        with monkeypatch.context() as patch:
            patch.setattr(LocalBackend, "run_many", bug)
            with pytest.raises(ZeroDivisionError):
                await commands.run(wanted("ls"))
        backend.close()
        assert isinstance(await commands.run(wanted("ls")), EngineFault)
        commands.close(cancel=True)

    def bug(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    asyncio.run(play())


def test_a_batch_that_ends_after_closing_hands_nothing_on(backend: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_commands, "_MOMENT", 1000.0)
    failed: list[dict[str, Any]] = []

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        commands = Commands(backend, 8)
        first = asyncio.ensure_future(commands.run(wanted("wc -l corpus.jsonl")))
        await until(lambda: backend.batches)
        second = asyncio.ensure_future(commands.run(wanted("ls")))
        await asyncio.sleep(0.05)
        backend.go.set()
        commands.close(cancel=True)  # waits for the first batch, whose end the loop has yet to see
        await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 30)
        assert second.cancelled()

    asyncio.run(play())
    assert not failed
