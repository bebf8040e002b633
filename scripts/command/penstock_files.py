"""Writes files as shim/base/output.h does in C: a link that another user made in a directory open
to all is not followed.
"""
import contextlib
import errno
import os
import secrets
import stat

LINKS_MAX = 40  # the kernel's own limit
NEW = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC


def is_others_link(path):
    try:
        link = os.lstat(path)
        if not stat.S_ISLNK(link.st_mode) or link.st_uid == os.geteuid():
            return False
        directory = os.stat(os.path.dirname(path) or ".")
    except FileNotFoundError:
        return False
    return bool(directory.st_mode & stat.S_IWOTH) and link.st_uid != directory.st_uid


def behind_links(path):
    """Returns where the links of the path lead, up to the first that must not be followed."""
    for _ in range(LINKS_MAX):
        if not os.path.islink(path) or is_others_link(path):
            break
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return path


def refuse_link(path):
    raise OSError(errno.ELOOP, "it is a link that another user made", path)


def open_in_place(path):
    """
    Opens a file to write from its beginning, in binary. It is emptied only after it proved to be
    the one that is named.
    """
    if is_others_link(behind_links(path)):
        refuse_link(path)
    file = os.fdopen(os.open(path, NEW, 0o666), "wb")
    try:
        opened, named = os.fstat(file.fileno()), os.lstat(path)
        is_named = stat.S_ISLNK(named.st_mode) or (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)
        if not is_named or is_others_link(behind_links(path)):
            refuse_link(path)
        if stat.S_ISREG(opened.st_mode):
            file.truncate(0)
    except OSError:
        file.close()
        raise
    return file


def write_in_place(path, text):
    with open_in_place(path) as file:
        file.write(text.encode())


def write_whole(path, data):
    """
    Writes a whole file or none, where links to it lead. A FIFO or a device is written to in place.
    """
    place = behind_links(path)
    if os.path.exists(place) and not os.path.isfile(place) and not is_others_link(place):
        with open_in_place(path) as file:
            file.write(data)
        return
    aside = f"{place}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    with os.fdopen(os.open(aside, NEW | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb") as file:
        try:
            file.write(data)
            file.flush()
            os.replace(aside, place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise
