"""What MkDocs asks while it builds the site (mkdocs.yml)."""

import re
from pathlib import Path, PurePosixPath
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
_SECTION = re.compile(r"^\*\*(.+?)\*\*(.*?)(?=^\*\*|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Let the menu have the pages in the order of docs/README.md."""
    contents = (DOCS / "README.md").read_text("utf-8")
    sections = [
        {name: [{text[0].upper() + text[1:]: page} for text, page, _ in _LINK.findall(links)]}
        for name, links in _SECTION.findall(contents)
    ]
    config.nav = [{"All pages": "README.md"}, *sections]
    config.mdx_configs["toc"] = {"slugify": _anchor, "permalink": True}
    return config


def _anchor(heading: str, separator: str) -> str:
    """A heading's anchor, as GitHub has it: the pages are read there too."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Keep the words of links to what the site does not have: files beside docs/."""
    folder = PurePosixPath(page.file.src_uri).parent

    def kept(link: re.Match[str]) -> str:
        above = link[2].split("/").count("..") > len(folder.parts)
        return link[1] if above else link[0]

    return _LINK.sub(kept, markdown)
