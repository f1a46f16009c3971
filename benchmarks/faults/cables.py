"""TCP connections that can be cut or held up, and then repaired."""

import socket
import threading
from contextlib import suppress

from tests.workers import port_reserve


class Cable:
    """A port of this machine that forwards to ``address`` until it is cut.

    Args:
        address: Host and port.
        port: Its own port, by default any free one. During a long cut, the kernel may assign it to others.
    """

    def __init__(self, address: tuple[str, int], port: int | None = None) -> None:
        self.address, self.port = address, port or port_reserve()
        self._ends: set[socket.socket] = set()
        self._flowing = threading.Event()
        self.repair()

    def repair(self) -> None:
        """Accept connections, for the first time or again."""
        self._flowing.set()
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def cut(self) -> None:
        """Close all connections, and refuse new ones."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for end in list(self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        """Keep connections open and accept new ones, but pass nothing on until `release`."""
        self._flowing.clear()

    def release(self) -> None:
        """Pass on what was held up."""
        self._flowing.set()

    def _accept(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                here, _ = server.accept()
                try:
                    there = socket.create_connection(self.address)
                except OSError:  # the server is away, and may come back
                    here.close()
                    continue
                self._ends |= {here, there}
                for ends in ((here, there), (there, here)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            self._ends.discard(end)
