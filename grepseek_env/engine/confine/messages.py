"""What the engine, the keeper and the launchers send one another: marshalled values, with descriptors beside them."""

from __future__ import annotations

import marshal
import socket
import struct
from typing import Any

__all__ = ["MESSAGE_BYTES", "MOST_HANDLES", "decode", "receive"]

MESSAGE_BYTES = 1 << 17
MOST_HANDLES = 200  # the kernel passes 253 at most


def decode(data: bytes) -> Any:
    """Reads a message of the other end, which is as trusted as this one."""
    return marshal.loads(data)  # noqa: S302


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Returns one message with the descriptors that came with it; no bytes at the end."""
    data, passed, _, _ = channel.recvmsg(
        MESSAGE_BYTES, socket.CMSG_SPACE(4 * MOST_HANDLES), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    )
    handles: list[int] = []
    for level, kind, content in passed:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            handles += struct.unpack(f"={len(content) // 4}i", content[: len(content) // 4 * 4])
    return data, handles
