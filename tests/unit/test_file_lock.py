import contextlib
import multiprocessing as mp
import threading
from pathlib import Path

from grepseek_env.paths import file_lock


def test_one_at_a_time_even_when_the_holder_removes_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    inside: list[int] = []
    most: list[int] = []
    waited: list[int] = []

    def work(number: int) -> None:
        for turn in range(20):
            with file_lock(path, on_wait=lambda: waited.append(number)):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)
                if turn % 3 == 0:  # the last thing that a holder may do
                    path.unlink()
                    with contextlib.suppress(OSError):  # somebody has begun anew in there
                        path.parent.rmdir()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 80


def _hold(path: Path, ready: "mp.synchronize.Event") -> None:
    with file_lock(path):
        ready.set()
        threading.Event().wait()


def test_a_killed_holder_blocks_nobody(tmp_path: Path) -> None:
    context = mp.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path / "lock", ready))
    holder.start()
    assert ready.wait(60)
    waited: list[bool] = []

    def release() -> None:
        waited.append(True)
        holder.kill()

    with file_lock(tmp_path / "lock", on_wait=release):
        assert waited == [True]
    holder.join()
