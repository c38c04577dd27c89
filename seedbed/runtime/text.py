"""Texts of peers, made safe for logs, terminals and status pages."""

LONGEST = 256


def printable(text: object, longest: int = LONGEST) -> str:
    """Escape what is not printable, and cut the result.

    Args:
        text: any object; its `str` counts.
        longest: characters of the result.
    """
    # One more character is enough to notice the cut, however long the text is.
    start = str(text)[: longest + 1]
    escaped = start if start.isprintable() else start.encode("unicode_escape").decode("ascii")
    return escaped if len(escaped) <= longest else escaped[: longest - 3] + "..."
