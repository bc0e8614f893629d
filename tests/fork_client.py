"""A short program that has a `ForkServer` do its work: for code that starts a command by itself.

It hands its streams, folder and environment over, passes signals on, and ends as the fork ends.
Only what Python loads anyway is imported, so that it starts in a hundredth of a second.
"""

import json
import os
import signal
import socket
import struct
import sys

NUMBER = struct.Struct("i")


def main(address: str, *arguments: str) -> None:
    changes, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX) as server:
        server.connect(f"\0{address}")
        socket.send_fds(server, [b"."], [0, 1, 2, theirs.fileno()])
    changes.sendall(json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode())  # noqa: PTH109
    changes.shutdown(socket.SHUT_WR)
    (pid,) = NUMBER.unpack(changes.recv(NUMBER.size))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    # The pipes are the fork's alone, so that they end with it.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    (status,) = NUMBER.unpack(changes.recv(NUMBER.size))
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
