"""Hook of mkdocs: links to files of the tree that are not on the site become their names."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+((?:helm|k8s)/[^)]*)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page's text without links that leave docs/.

    Args:
        markdown: Text of the page.
        **_: What mkdocs says besides.
    """
    return _OUTSIDE.sub(r"\1 (`\2`)", markdown)
