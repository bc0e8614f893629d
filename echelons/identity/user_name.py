"""The name of the person who gives an answer or an order, as they say it: nobody checks it."""

from __future__ import annotations

import getpass
import os

from echelons.text.input_limits import check_label, is_label


def choose_user_name(given: object = None) -> str:
    """Return a name that was given, or else that of the operating system's user.

    Raises:
        InvalidId: It is no text of 1 to 512 characters that can be printed.

    Examples:
        >>> choose_user_name("Ann")
        'Ann'
    """
    if given is not None:
        return check_label(given, "by")
    try:
        name = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container's user may have no name
        name = ""
    return name if is_label(name) else f"user {os.getuid()}" if hasattr(os, "getuid") else "user"
