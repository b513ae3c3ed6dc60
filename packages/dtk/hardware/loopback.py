"""TCP over this machine's loopback: a peer that answers, as local ranks of a job would."""

import socket
from contextlib import ExitStack, suppress
from threading import Thread
from types import TracebackType
from typing import Self

__all__ = ["Loopback"]

_TIMEOUT_S = 30.0
_CHUNK = 2**20


class Loopback:
    """A connection to a thread of this process. Use it as a context manager.

    The peer reads messages of a size that both know, and answers each with one byte.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            OSError: If the machine lets nobody listen on its loopback.
        """
        with ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listener.settimeout(_TIMEOUT_S)
            self._ours = stack.enter_context(
                socket.create_connection(listener.getsockname(), timeout=_TIMEOUT_S)
            )
            theirs = stack.enter_context(listener.accept()[0])
            for end in (self._ours, theirs):
                end.settimeout(_TIMEOUT_S)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = Thread(target=_answer, args=(theirs,), name="dtk-loopback", daemon=True)
            peer.start()
            stack.callback(peer.join)
            # Called first: the peer ends when nothing comes any more.
            stack.callback(self._hang_up)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect and wait for the peer to end."""
        self._stack.close()

    def send(self, size: int) -> None:
        """Send a message of `size` bytes and wait until the peer has it all.

        Raises:
            OSError: If the connection is lost, or nothing moves for half a minute.
        """
        self._ours.sendall(size.to_bytes(8, "big"))
        block = memoryview(bytes(min(size, _CHUNK)))
        for start in range(0, size, _CHUNK):
            self._ours.sendall(block[: size - start])
        if not self._ours.recv(1):
            raise ConnectionError("the peer on the loopback has gone")

    def _hang_up(self) -> None:
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_WR)


def _answer(connection: socket.socket) -> None:
    """Read messages and answer each, until the other side ends or is lost."""
    buffer = memoryview(bytearray(_CHUNK))
    with suppress(OSError):
        while size := _receive_size(connection):
            left = int.from_bytes(size, "big")
            while left:
                got = connection.recv_into(buffer[: min(left, _CHUNK)])
                if not got:
                    return
                left -= got
            connection.sendall(b"\0")


def _receive_size(connection: socket.socket) -> bytes:
    size = b""
    while len(size) < 8:
        part = connection.recv(8 - len(size))
        if not part:
            return b""
        size += part
    return size
