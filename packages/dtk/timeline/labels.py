"""Names as pictures show them, whoever gave them."""

__all__ = ["printable"]


def printable(text: str) -> str:
    """Return a text of one line that no terminal obeys and every font library takes.

    Control characters, line ends and lone surrogates become U+FFFD.
    """
    return "".join(one if one.isprintable() else "\ufffd" for one in text)
