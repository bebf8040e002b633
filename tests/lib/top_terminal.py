"""Tests `penstock top` in a terminal. The arguments are its command. A failure is an assertion. It
expects a running process under Penstock that is learning.
"""
import fcntl, os, pty, re, select, signal, struct, subprocess, sys, termios, time

def size(fd, down, across):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", down, across, 0, 0))

def read(fd, seconds, until):
    """Returns the output until `until(output)` is true or `seconds` are over."""
    end, text = time.monotonic() + seconds, b""
    while time.monotonic() < end and not until(text):
        if select.select([fd], [], [], 0.05)[0]:
            try:
                text += os.read(fd, 65536)
            except OSError:
                break
    return text

def watch(leave, environment, across=140, resized=40):
    master, slave = pty.openpty()
    size(master, 24, across)
    before = termios.tcgetattr(slave)
    top = subprocess.Popen(sys.argv[1:] + ["-d", "0.1"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment,
                           preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    text = read(master, 10, lambda t: t.count(b"\x1b[H") >= 2)
    size(master, 24, resized)
    text += (narrow := read(master, 10, lambda t: t.count(b"\x1b[H") >= 3))
    assert termios.tcgetattr(slave)[3] & (termios.ECHO | termios.ICANON) == 0
    leave(master, top)
    text += read(master, 5, lambda t: b"\x1b[?1049l" in t)
    status = top.wait(10)
    assert termios.tcgetattr(slave) == before, "the terminal's modes"
    assert text.startswith(b"\x1b[?1049h\x1b[?25l") and text.endswith(b"\x1b[?7h\x1b[?25h\x1b[?1049l"), text[-40:]
    plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", picture) for picture in text.decode().split("\x1b[H")[1:]]
    assert across < 100 or ("learning" in plain[0] and "/loop" in plain[0]), plain[0]
    assert max(len(line) for line in plain[0].splitlines()) <= across
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", narrow.decode().split("\x1b[H")[-2])
    assert max(len(line) for line in last.splitlines()) <= resized, last
    return status, text

everything = dict(os.environ, TERM="xterm")
plain = dict(everything, NO_COLOR="1")
status, text = watch(lambda fd, top: os.write(fd, b"xq"), everything)
assert status == 0 and b"\x1b[33mlearning" in text
status, text = watch(lambda fd, top: os.write(fd, b"\x03"), plain)
assert status == 0 and not re.search(rb"\x1b\[[0-9;]*m", text)
for across in (40, 80):
    assert watch(lambda fd, top: os.write(fd, b"Q"), plain, across, max(across - 7, 7))[0] == 0
status, _ = watch(lambda fd, top: top.send_signal(signal.SIGTERM), plain)
assert status == -signal.SIGTERM, status
