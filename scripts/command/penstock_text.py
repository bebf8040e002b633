"""Makes foreign text safe for a terminal, as shim/base/plain_text.h does in C: control characters
become question marks.
"""
import re

# Control characters, also as single bytes outside UTF-8 (surrogates in Python), and characters that
# change the direction or end a line.
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\udc80-\udc9f]")


def plain(text):
    return OBEYED.sub("?", text)
