"""Tells Penstock about a Python program (include/penstock/penstock.h). Without Penstock in the process,
no call does anything.

    import penstock
    with penstock.layer("block", i, "forward"):
        x = block(x)
    penstock.step()                    # at the end of each step
    penstock.pin(tensor.data_ptr())    # this allocation stays in device memory

A layer belongs to the thread that began it. torch runs the backward pass on its own threads: mark the
layers of backward in hooks.
"""
import contextlib
import ctypes

_NAMES = ("layer_begin", "layer_end", "step", "pin", "unpin", "hint_idle")
_DIRECTIONS = {None: 0, "forward": 1, "backward": 2}
_ENOENT = -2


def _find():
    """Returns the functions of the preloaded library, or None."""
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
    """Returns True if Penstock is in this process."""
    return _functions is not None


@contextlib.contextmanager
def layer(name, number=-1, direction=None):
    """
    Kernels launched inside belong to this layer. `number` is the same in forward and backward;
    negative: no layer of the model.
    """
    begin(name, number, direction)
    try:
        yield
    finally:
        end()


def begin(name, number=-1, direction=None):
    """Begins a layer as `layer` does, for hooks. Ends with `end`."""
    if _functions:
        _functions["layer_begin"](None if name is None else name.encode(), number, _DIRECTIONS[direction])


def end():
    if _functions:
        _functions["layer_end"]()


def step():
    """Marks the end of a step of the training loop."""
    if _functions:
        _functions["step"]()


def pin(address):
    """
    Keeps the allocation at the address in device memory. Returns 0, or a negative errno if Penstock
    has no allocation there.
    """
    return _functions["pin"](address) if _functions else _ENOENT


def unpin(address):
    return _functions["unpin"](address) if _functions else _ENOENT


def hint_idle(address):
    """
    Lets the allocation at the address leave first when memory is short. Returns as `pin` does.
    """
    return _functions["hint_idle"](address) if _functions else _ENOENT
