"""Check relative links and anchors of Markdown files, without the network.

`python3 scripts/links.py` ends with status 1 if a link of a document names a file that is not there, or a heading that
its page does not have. Links in pages of the API reference that point at Python names are left to MkDocs.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", ".github/**/*.md")
FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`+[^`]+`+")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)? *(?:\{ *#([\w-]+) *\})? *$", re.MULTILINE)
TARGET = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


def blank(pattern: re.Pattern[str], text: str) -> str:
    """The text with matches blanked out, so that lines keep their numbers."""
    return pattern.sub(lambda match: re.sub(r"\S", " ", match[0]), text)


def slug(heading: str) -> str:
    """The anchor that MkDocs gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of a page: its headings, a second one of the same name with `_1` as in MkDocs, and explicit targets."""
    text = blank(FENCE, page.read_text(encoding="utf-8"))
    found = set(TARGET.findall(text))
    for heading, explicit in HEADING.findall(text):
        base = explicit or slug(heading)
        name, again = base, 0
        while name in found:
            again += 1
            name = f"{base}_{again}"
        found.add(name)
    return frozenset(found)


def broken(page: Path, root: Path = ROOT) -> list[str]:
    """Links of a page that lead nowhere, one message each."""
    text = blank(CODE, blank(FENCE, page.read_text(encoding="utf-8")))
    messages = []
    for match in LINK.finditer(text):
        link = match[1] or match[2]
        if re.match(r"[a-z][a-z+.-]*:", link):  # another scheme: the network is not asked
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (page.parent / name).resolve() if name else page
        where = f"{page.relative_to(root).as_posix()}:{text.count(chr(10), 0, match.start()) + 1}"
        if not target.exists():
            messages.append(f"{where}: {link}: there is no such file")
        elif not target.is_relative_to(root):
            messages.append(f"{where}: {link}: outside the repository")
        elif anchor and target.suffix == ".md" and "." not in anchor and anchor not in anchors(target):
            messages.append(f"{where}: {link}: that page has no heading #{anchor}")
    return messages


def main() -> int:
    pages = sorted({page for glob in PAGES for page in ROOT.glob(glob)})
    messages = [message for page in pages for message in broken(page)]
    print("\n".join(messages) if messages else f"links of {len(pages)} pages lead somewhere")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
