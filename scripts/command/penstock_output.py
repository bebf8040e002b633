"""Standard output and the messages of a program: no failure of either ends in a traceback."""
import os
import sys

from penstock_text import plain

REFUSED = 2


def end_of_output():
    """Discards further output, at the end of the program too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def say(text):
    """Prints one line to standard error. Standard output comes first: both may go to one file."""
    if sys.stdout:
        sys.stdout.flush()
    if sys.stderr:
        print(f"penstock: {plain(text)}", file=sys.stderr, flush=True)


def fail(text):
    say(text)
    sys.exit(REFUSED)


def run(main):
    """
    Runs a program that prints. A reader that closes the pipe is no error; any other error of
    standard output is. Prints file names as they are.
    """
    if sys.stdout is None:
        fail("standard output is closed; redirect it, for example with >/dev/null")
    sys.stdout.reconfigure(errors="surrogateescape")
    status = 0
    try:
        try:
            main()
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()
    except BrokenPipeError:
        end_of_output()
    except OSError as error:
        if error.filename is not None:
            fail(f"{error.filename}: {error.strerror}")
        end_of_output()
        fail(f"standard output can't be written: {error.strerror}; make room, or redirect it")
    sys.exit(status)
