"""What a Python program may tell Penstock about itself (include/penstock/penstock.h). Without Penstock in the process every call does nothing.

    import penstock
    with penstock.layer("block", i, "forward"):
        x = block(x)
    penstock.step()                    # at the end of each step
    penstock.pin(tensor.data_ptr())    # this allocation stays in device memory

A layer belongs to the thread that began it. torch runs backward on threads of its own: mark backward's layers in hooks.
"""
import contextlib
import ctypes

_NAMES = ("layer_begin", "layer_end", "step", "pin", "unpin", "hint_idle")
_DIRECTIONS = {None: 0, "forward": 1, "backward": 2}
_ENOENT = -2


def _find():
    """The functions of the preloaded library, or None."""
    process = ctypes.CDLL(None)
    try:
        found = {name: getattr(process, "penstock_" + name) for name in _NAMES}
    except AttributeError:
        return None
    found["layer_begin"].argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_int)
    for name in ("layer_begin", "layer_end", "step"):
        found[name].restype = None
    for name in ("pin", "unpin", "hint_idle"):
        found[name].argtypes = (ctypes.c_void_p,)
    return found


_functions = _find()


def loaded():
    """Whether Penstock is in this process."""
    return _functions is not None


@contextlib.contextmanager
def layer(name, number=-1, direction=None):
    """What is launched inside belongs to this layer; `number` is the same in forward and backward, negative for none of the model's."""
    begin(name, number, direction)
    try:
        yield
    finally:
        end()


def begin(name, number=-1, direction=None):
    """The same without `with`, for hooks."""
    if _functions:
        _functions["layer_begin"](None if name is None else name.encode(), number, _DIRECTIONS[direction])


def end():
    if _functions:
        _functions["layer_end"]()


def step():
    """A step of the training loop is over."""
    if _functions:
        _functions["step"]()


def pin(address):
    """The allocation at the address stays in device memory. 0; a negative errno: Penstock has no allocation there."""
    return _functions["pin"](address) if _functions else _ENOENT


def unpin(address):
    return _functions["unpin"](address) if _functions else _ENOENT


def hint_idle(address):
    """The allocation at the address leaves first when memory is short."""
    return _functions["hint_idle"](address) if _functions else _ENOENT
