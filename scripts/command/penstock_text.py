"""Text of others' as a terminal may be given it, as shim/base/plain_text.h does it in C: shown and not obeyed."""
import re

# Control characters, also as single bytes that are no UTF-8 (which Python has as surrogates); what turns the direction or ends a line.
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\udc80-\udc9f]")


def plain(text):
    return OBEYED.sub("?", text)
