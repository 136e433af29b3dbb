from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from grepseek_env.daemon.address import TcpAddress, UnixAddress, default_socket, parse_address
from grepseek_env.errors import ConfigError, EngineFault

DIGEST = "0123456789abcdef" * 4


def test_addresses_read_and_write() -> None:
    for text in ("/run/x.sock", "tcp://127.0.0.1:80", "tcp://[::1]:8000", "tcp://host.example:1"):
        assert str(parse_address(text)) == text
    assert parse_address("unix:/run/x.sock") == UnixAddress(Path("/run/x.sock"))
    assert parse_address(Path("x.sock")) == UnixAddress(Path.cwd() / "x.sock")
    assert parse_address("tcp://[::1]:8000") == TcpAddress("::1", 8000)


@pytest.mark.parametrize("text", ["", "tcp://", "tcp://host", "tcp://:80", "tcp://host:", "tcp://h:x", "tcp://h:65536"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"tcp://HOST:PORT"):
        parse_address(text)


def test_a_path_that_is_too_long_says_how_long() -> None:
    with pytest.raises(ConfigError, match=r"has \d+ bytes; 10\d is the most.*--socket"):
        UnixAddress(Path("/tmp") / ("ä" * 60))  # noqa: S108 - nothing is made there


def test_a_socket_is_for_its_user_only(tmp_path: Path) -> None:
    address = UnixAddress(tmp_path / "new" / "d.sock")
    with address.listen():
        assert stat.S_IMODE(address.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(address.path.parent.stat().st_mode) == 0o700
        assert [entry.name for entry in address.path.parent.iterdir()] == ["d.sock"]


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    address = UnixAddress(tmp_path / "d.sock")
    address.listen().close()
    assert address.path.is_socket()
    with address.listen():
        address.connect().close()


def test_a_live_socket_is_not(tmp_path: Path) -> None:
    address = UnixAddress(tmp_path / "d.sock")
    with address.listen(), pytest.raises(ConfigError, match=r"already listening.*--stop"):
        address.listen()
    assert address.path.is_socket()


def test_a_full_backlog_is_not_stale(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as one:
        listener.bind(str(path))
        listener.listen(0)
        one.connect(str(path))
        with pytest.raises(ConfigError, match="already listening"):
            UnixAddress(path).listen()
    assert path.is_socket()


def test_a_file_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="is no socket"):
        UnixAddress(path).listen()
    assert path.read_text() == "mine"


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="others could replace"):
        UnixAddress(folder / "d.sock").listen()
    folder.chmod(0o1777)
    UnixAddress(folder / "d.sock").listen().close()


def test_a_folder_that_cannot_be_made_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineFault, match="cannot listen"):
        UnixAddress(tmp_path / "file" / "d.sock").listen()


def test_a_taken_port_is_a_fault() -> None:
    with TcpAddress("127.0.0.1", 0).listen() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EngineFault, match=r"cannot listen on tcp://127\.0\.0\.1"):
            TcpAddress("127.0.0.1", port).listen()


def test_the_usual_socket_is_in_the_first_folder_that_is_short_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 90)
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "c"))
    assert default_socket(DIGEST).path == tmp_path / "run" / "grepseek" / "0123456789abcdef.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
    assert default_socket(DIGEST).path == tmp_path / "c" / "run" / "0123456789abcdef.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert default_socket(DIGEST).path == tmp_path / "c" / "run" / "0123456789abcdef.sock"
    monkeypatch.setenv("GREPSEEK_CACHE", str(long))
    assert default_socket(DIGEST).path.parent.name == f"grepseek-{os.getuid()}"
