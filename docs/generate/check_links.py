"""Checks every link of the built manual without a network: files and anchors exist, and no page fetches from elsewhere.

Search must work in pages that are opened as files, where browsers fetch nothing and start no workers.

python docs/generate/check_links.py build/docs
"""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

#: Attributes by which a browser loads something by itself.
_LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class _Page(HTMLParser):
    """The links and anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        # Of <link>, only style sheets and icons are loaded; others describe the page.
        is_resource = tag == "link" and given.get("rel", "") in {"stylesheet", "icon"}
        for name in ("href", "src"):
            if name not in given:
                continue
            self.links.append(given[name])
            if (tag, name) in _LOADED or is_resource:
                self.loaded.append(given[name])


def broken_links(site: Path) -> list[str]:
    """Return a line for every link that leads nowhere, and for everything that would come from a network."""
    pages = {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        # The page for missing files is served from anywhere, so its links begin at the root of the server.
        if path.name == "404.html":
            continue
        name = path.relative_to(site.resolve())
        found += [f"{name}: loads {link} from a network" for link in page.loaded if _is_remote(link)]
        if not any(link.endswith("javascripts/iframe-worker.js") for link in page.loaded):
            found.append(f"{name}: search does not work in a file, because nothing replaces its worker")
        found += [f"{name}: {link} leads nowhere" for link in page.links if not _leads_somewhere(link, path, pages)]
    return found


def unsearchable_pages(site: Path) -> list[str]:
    """Return a line for every page that is not in the script with the search index."""
    index = json.loads((site / "search" / "search_index.js").read_text(encoding="utf-8").removeprefix("var __index = "))
    indexed = {(site / urldefrag(entry["location"]).url).resolve() for entry in index["docs"]}
    pages = {path.resolve() for path in site.rglob("*.html")} - {(site / "404.html").resolve()}
    return [f"{path.relative_to(site.resolve())}: not in the search index" for path in sorted(pages - indexed)]


def _is_remote(link: str) -> bool:
    return link.startswith(("http://", "https://", "//"))


def _leads_somewhere(link: str, path: Path, pages: dict[Path, _Page]) -> bool:
    if _is_remote(link) or link.startswith(("mailto:", "data:")):
        return True
    file, anchor = urldefrag(unquote(link))
    target = (path.parent / file).resolve() if file else path
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return False
    return not anchor or target not in pages or anchor in pages[target].anchors


if __name__ == "__main__":
    built = Path(sys.argv[1])
    sys.exit("\n".join([*broken_links(built), *unsearchable_pages(built)]) or 0)
