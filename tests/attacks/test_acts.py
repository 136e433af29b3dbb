"""Code of an attacker's own in the place of a program: what the system's layers alone must prevent.

Each act raises unless it works. Each was seen to work without a sandbox, or is there for a system on which it might.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.engine.confine.probe import ACTS, attempt, python_programs, try_acts
from tests.support.arena import Arena, needs
from tests.support.processes import linux_only

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grepseek_env.engine.programs import Programs

pytestmark = linux_only

CALLS = (
    "import ctypes, errno, os\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "libc.syscall.restype = ctypes.c_long\n"
    "def call(number, *arguments):\n"
    "    words = [ctypes.c_ulong(a & (1 << 64) - 1) if isinstance(a, int) else a for a in arguments]\n"
    "    result = libc.syscall(ctypes.c_long(number), *words)\n"
    "    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n"
    "    return result\n"
)

# name -> (layer, code); numbers are those of x86-64
FILES = {
    "read outside": ("landlock", "open(canary).read()"),
    "read outside by ..": ("landlock", "open('../../../outside/secret.txt').read()"),
    "read the questions": ("landlock", "open(own + '/questions.jsonl').read()"),
    "read the questions by ..": ("landlock", "open('../../questions.jsonl').read()"),
    "read the source of the corpus": ("landlock", "assert own + '/corpus.jsonl' and open(own + '/questions.jsonl')"),
    "read the manifest": ("landlock", "open('../manifest.json').read()"),
    "read through a link in /proc": ("landlock", "open('/proc/self/root' + canary).read()"),
    "read through the folder's handle": (
        "landlock",
        "f = os.open('..', os.O_PATH); os.open('../../outside/secret.txt', os.O_RDONLY, dir_fd=f)",
    ),
    "reopen a path handle": ("landlock", "f = os.open(canary, os.O_PATH); open(f'/proc/self/fd/{f}').read()"),
    "read passwords": ("landlock", "open('/etc/passwd').read()"),
    "list a folder": ("landlock", "os.listdir(os.path.dirname(canary))"),
    "list the root": ("landlock", "os.listdir('/')"),
    "list processes": ("landlock", "os.listdir('/proc')"),
    "read the environment of the engine": ("landlock", "open(f'/proc/{parent}/environ').read()"),
    "read the memory of the engine": ("landlock", "open(f'/proc/{parent}/mem', 'rb').read(1)"),
    "read the memory map of the engine": ("landlock", "open(f'/proc/{parent}/maps').read()"),
    "read the descriptors of the engine": ("landlock", "os.listdir(f'/proc/{parent}/fd')"),
    "read the memory of the launcher": ("landlock", "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)"),
    "read the kernel's memory": ("landlock", "open('/dev/mem', 'rb').read(1)"),
    "read a disk": ("landlock", "open('/dev/vda', 'rb').read(1)"),
    "read the kernel's messages": ("landlock", "open('/dev/kmsg').read(1)"),
    "open a file by its handle": ("seccomp", "call(303, 3, canary.encode(), 0); call(304, 3, canary.encode(), 0)"),
    "write outside": ("landlock", "open(canary, 'a').write('x')"),
    "write outside without seccomp's look": ("landlock", "call(437, -100, canary.encode(), b'\\x01' * 24, 24)"),
    "make a file outside": ("landlock", "open(canary + '.new', 'w')"),
    "make a file in /tmp": ("landlock", "open('/tmp/grepseek-attack', 'w')"),
    "make a file in /dev/shm": ("landlock", "open('/dev/shm/grepseek-attack', 'w')"),
    "make a file beside the corpus": ("landlock", "open('new', 'w')"),
    "make a nameless file": ("landlock", "os.open('.', os.O_TMPFILE | os.O_RDWR)"),
    "write the corpus": ("landlock", "open('corpus.jsonl', 'r+').write('x')"),
    "append to the corpus": ("landlock", "open('corpus.jsonl', 'a').write('x')"),
    "empty the corpus": ("landlock", "open('corpus.jsonl', 'w')"),
    "truncate the corpus": ("landlock", "os.truncate('corpus.jsonl', 0)"),
    "remove the corpus": ("landlock", "os.unlink('corpus.jsonl')"),
    "rename the corpus": ("landlock", "os.rename('corpus.jsonl', 'x')"),
    "exchange the corpus": ("seccomp", "call(316, -100, b'corpus.jsonl', -100, canary.encode(), 2)"),
    "link the corpus": ("landlock", "os.link('corpus.jsonl', canary + '.link')"),
    "link to outside": ("landlock", "os.symlink(canary, 'link')"),
    "make a folder": ("landlock", "os.mkdir('folder')"),
    "make a pipe with a name": ("landlock", "os.mkfifo('pipe')"),
    "make a device": ("landlock", "os.mknod('null', 0o666 | 0o020000, os.makedev(1, 3))"),
    "change the corpus's mode": ("seccomp", "os.chmod('corpus.jsonl', 0o777)"),
    "change its owner": ("seccomp", "os.chown('corpus.jsonl', os.getuid(), os.getgid())"),
    "change its time": ("seccomp", "os.utime('corpus.jsonl')"),
    "give it an attribute": ("seccomp", "os.setxattr('corpus.jsonl', 'user.x', b'x')"),
    "change a mode outside": ("seccomp", "os.chmod(canary, 0o777)"),
    "change a mode by a handle": ("seccomp", "f = os.open('corpus.jsonl', os.O_RDONLY); os.fchmod(f, 0o777)"),
    "change a time by a handle": ("seccomp", "f = os.open('corpus.jsonl', os.O_RDONLY); os.utime(f)"),
    "lock the corpus for others": ("seccomp", "import fcntl; fcntl.flock(os.open('corpus.jsonl', 0), fcntl.LOCK_EX)"),
    "lease the corpus": ("seccomp", "import fcntl; fcntl.fcntl(os.open('corpus.jsonl', 0), 1024, 0)"),
    "watch a folder": ("seccomp", "call(253); call(294, 0)"),
    "write to a terminal": ("landlock", "open('/dev/tty', 'w').write('x')"),
    "change the root": ("seccomp", "os.chroot('.')"),
}
PROCESSES = {
    "fork": ("seccomp", "os.fork() or os._exit(0)"),
    "fork by the system call": ("seccomp", "call(57)"),
    "vfork": ("seccomp", "call(58)"),
    "clone3": ("seccomp", "call(435, b'\\0' * 64, 64)"),
    "start a program": ("seccomp", "os.execv('/bin/true', ['true'])"),
    "start a script": ("seccomp", "os.execv(os.path.dirname(canary) + '/run.sh', ['run.sh'])"),
    "start a program by the loader": ("seccomp", "os.execv('/lib64/ld-linux-x86-64.so.2', ['ld', '/bin/true'])"),
    "start an allowed program": ("seccomp", "os.execv('/proc/self/exe', ['python', '-c', 'print(\"done\")'])"),
    "start one as C libraries do": ("seccomp", "pid = os.posix_spawn('/bin/true', ['true'], {})"),
    "start one through a shell": ("seccomp", "assert os.system('true') == 0"),
    "start one by its handle": (
        "seccomp",
        "f = os.open('/proc/self/exe', 0); os.execve(f, ['python', '--version'], {})",
    ),
    "start one from memory": ("seccomp", "os.memfd_create('x')"),
    "start one by execveat": ("seccomp", "call(322, -100, b'/bin/true', 0, 0, 0)"),
    "signal the engine": ("seccomp", "os.kill(parent, 0)"),
    "stop the engine": ("seccomp", "os.kill(parent, 19)"),
    "signal everything": ("seccomp", "os.kill(-1, 0)"),
    "signal the engine's thread": ("seccomp", "call(234, parent, parent, 0)"),
    "signal the launcher's thread": ("seccomp", "call(200, os.getppid(), 9)"),
    "signal another program's thread": ("seccomp", "call(200, os.getpid(), 0)"),
    "queue a signal": ("seccomp", "call(129, parent, 0, b'\\0' * 128)"),
    "open the engine": ("seccomp", "call(434, parent, 0)"),
    "take the engine's descriptors": ("seccomp", "call(438, 0, 0, 0)"),
    "trace the engine": ("seccomp", "call(101, 16, parent, 0, 0)"),
    "be traced": ("seccomp", "call(101, 0, 0, 0, 0)"),
    "read the engine's memory": ("seccomp", "call(310, parent, 0, 0, 0, 0, 0)"),
    "write the engine's memory": ("seccomp", "call(311, parent, 0, 0, 0, 0, 0)"),
    "compare with the engine": ("seccomp", "call(312, parent, os.getpid(), 0, 0, 0)"),
    "change the engine's limits": ("seccomp", "import resource; resource.prlimit(parent, resource.RLIMIT_CPU, (1, 1))"),
    "raise its own limits": (
        "seccomp",
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU))",
    ),
    "change its priority": ("seccomp", "os.nice(1)"),
    "change the engine's priority": ("seccomp", "os.setpriority(os.PRIO_PROCESS, parent, 19)"),
    "change the engine's cores": ("seccomp", "os.sched_setaffinity(parent, {0})"),
    "change its scheduling": ("seccomp", "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))"),
    "leave its group": ("seccomp", "os.setpgid(0, 0)"),
    "leave its session": ("seccomp", "os.setsid()"),
}
NETWORK = {
    "open a socket": ("seccomp", "import socket; socket.socket()"),
    "open a datagram socket": ("seccomp", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"),
    "open a local socket": ("seccomp", "import socket; socket.socket(socket.AF_UNIX)"),
    "open a pair of sockets": ("seccomp", "import socket; socket.socketpair()"),
    "open a raw socket": ("seccomp", "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    "open a netlink socket": ("seccomp", "import socket; socket.socket(16, socket.SOCK_RAW)"),
    "open a packet socket": ("seccomp", "import socket; socket.socket(17, socket.SOCK_RAW)"),
    "connect": ("seccomp", "import socket; socket.create_connection(('127.0.0.1', port), 1)"),
    "listen": ("seccomp", "import socket; socket.create_server(('127.0.0.1', 0))"),
    "set up io_uring": ("seccomp", "call(425, 8, b'\\0' * 120)"),
}
KERNEL = {
    "become root": ("user", "os.setuid(0); open(canary).read()"),
    "get capabilities": ("user", "call(126, b'\\x22\\x05\\x08\\x20' + b'\\0' * 4, b'\\xff' * 24)"),
    "a new user namespace": ("seccomp", "call(272, 0x10000000)"),
    "a new network namespace": ("seccomp", "call(272, 0x40000000)"),
    "enter a namespace": ("seccomp", "call(308, 0, 0)"),
    "mount": ("seccomp", "call(165, b'none', b'/tmp', b'tmpfs', 0, 0)"),
    "mount, the new way": ("seccomp", "call(430, b'tmpfs', 0)"),
    "unmount": ("seccomp", "call(166, b'/proc', 2)"),
    "exchange the root": ("seccomp", "call(155, b'.', b'.')"),
    "add a key": ("seccomp", "call(248, b'user', b'x', b'y', 1, -3)"),
    "read keys": ("seccomp", "call(250, 0, -3, 0)"),
    "load a kernel module": ("seccomp", "call(175, b'', 0, b'')"),
    "load a program into the kernel": ("seccomp", "call(321, 0, b'\\0' * 64, 64)"),
    "watch events": ("seccomp", "call(298, b'\\0' * 64, 0, -1, -1, 0)"),
    "handle page faults": ("seccomp", "call(323, 0)"),
    "change the clock": ("seccomp", "call(227, 0, b'\\0' * 16)"),
    "change the host's name": ("seccomp", "call(170, b'x', 1)"),
    "restart": ("seccomp", "call(169, 0, 0, 0, 0)"),
    "read kernel messages": ("seccomp", "call(103, 10, 0, 0)"),
    "swap": ("seccomp", "call(167, b'/dev/null', 0)"),
    "ports": ("seccomp", "call(173, 0, 1, 1)"),
    "change its personality": ("seccomp", "call(135, 0x0040000)"),
    "make shared memory": ("seccomp", "call(29, 0, 4096, 0o1600)"),
    "make a semaphore": ("seccomp", "call(64, 0, 1, 0o1600)"),
    "make a message queue": ("seccomp", "call(68, 0, 0o1600)"),
    "make a named message queue": ("seccomp", "call(240, b'x', 0o102, 0o600, 0)"),
    "share memory by a file": ("seccomp", "call(319, b'x', 0)"),
    "secret memory": ("seccomp", "call(447, 0)"),
    "fake input on a terminal": ("seccomp", "import fcntl; fcntl.ioctl(0, 0x5412, b'x')"),
    "change a filter": ("seccomp", "call(317, 1, 0, 0)"),
    "make itself readable to others": ("seccomp", "call(157, 4, 1, 0, 0, 0)"),
    "let others trace it": ("seccomp", "call(157, 0x59616d61, -1, 0, 0, 0)"),
    "use the numbers of 32-bit programs": ("seccomp", "call(0x40000000 + 39)"),
    "lock memory": ("limits", "import mmap; m = mmap.mmap(-1, 1 << 20); call(149, 0, 1 << 20)"),
    "take more memory than allowed": ("limits", "x = bytearray(300 << 20)"),
    "open more files than allowed": ("limits", "[os.open('corpus.jsonl', 0) for _ in range(100)]"),
}
ALL = {**FILES, **PROCESSES, **NETWORK, **KERNEL}


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with tempfile.TemporaryDirectory(prefix="arena-") as folder:
        Path(folder).chmod(0o755)
        place = Arena(Path(folder))
        yield place
        place.close()


@pytest.fixture(scope="module")
def python() -> Programs:
    return python_programs()


def test_an_act_that_is_allowed_works(arena: Arena, python: Programs) -> None:
    # Without it, "prevented" could mean that nothing ever works.
    needs()
    result = attempt(arena.sandbox(python), CALLS + "assert open('corpus.jsonl').read(1)", "x")
    assert (result.stdout, result.stderr) == (b"done\n", b"")


def test_there_are_enough() -> None:
    assert len(ALL) >= 120


@pytest.mark.parametrize("name", ALL)
def test_prevented(arena: Arena, python: Programs, name: str) -> None:
    _, code = ALL[name]
    needs("landlock", "seccomp")
    setting = f"own, port = {str(arena.own)!r}, {arena.port}\n"
    result = attempt(arena.sandbox(python), CALLS + setting + code, str(arena.outside / "secret.txt"))
    assert b"done" not in result.stdout
    assert result.exit_code != 0  # it was told, or the act was deadly to whoever tried
    arena.check(result.stdout)


def test_what_doctor_tries_is_prevented(python: Programs) -> None:
    needs()
    tried = try_acts(python)
    assert tried.keys() == set(ACTS)
    assert all("rror: " in told for told in tried.values()), tried


# The filter lets a program start itself once more in the same memory, as the C library does to start another program;
# it has no other program to start. The copy cannot leave the group, which ends with the command.
COPY = "pid = call(56, 0x4111, 0, 0, 0, 0)\nif pid == 0:\n    while True: call(35, (ctypes.c_long * 2)(60, 0), 0)\n"


def test_a_copy_of_a_program_ends_with_its_command(arena: Arena, python: Programs) -> None:
    needs("seccomp")
    mark = f"copy-{secrets.token_hex(8)}"
    result = attempt(arena.sandbox(python), CALLS + COPY, mark, timeout=1.0)
    assert result.timed_out
    assert b"done" not in result.stdout
    for _ in range(400):
        left = [p.parent.name for p in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _read(p)]
        if not left:
            break
        time.sleep(0.005)
    assert not left
    arena.check(result.stdout)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""
