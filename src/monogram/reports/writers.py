"""Write a report as Markdown, with its pictures as files beside it, or as one self-contained HTML page."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from monogram.errors import ParameterError
from monogram.reports.blocks import Block, Grid, Heading, Items, Picture, Text
from monogram.safe import whole_file

SUFFIXES = (".md", ".html")
# The colours of the browser, light or dark; pictures keep a white background.
CSS = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .25rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid #8886; }
thead th { border-bottom: 2px solid #888; }
tbody th { font-weight: 600; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { padding: .5rem .75rem; border: 1px solid #8886; overflow-x: auto; }
img { max-width: 100%; height: auto; background: #fff; border: 1px solid #8886; }
@media print { body { max-width: none; font-size: 11px; } .wide { overflow: visible; } }
"""
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def check(path: str | Path) -> None:
    """Raise ParameterError for a file name with another suffix than .md or .html."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ParameterError(f"{path} cannot be a report; expected a name ending in {' or '.join(SUFFIXES)}")


def write(blocks: Sequence[Block], path: str | Path) -> list[Path]:
    """Write a report in the format of the suffix of its path; returns the files written."""
    check(path)
    target = Path(path)
    if target.suffix.lower() == ".html":
        files = {target: page(blocks).encode()}
    else:
        pictures = [block for block in blocks if isinstance(block, Picture)]
        files = {target.with_name(f"{target.stem}-{picture.name}.svg"): picture.svg for picture in pictures}
        files[target] = markdown(blocks, target.stem).encode()
    for name, content in files.items():
        with whole_file(name) as file:
            file.write(content)
    return list(files)


def markdown(blocks: Sequence[Block], stem: str) -> str:
    """The report as Markdown; pictures are in files whose names begin with `stem`."""
    return "\n\n".join(_in_markdown(block, stem) for block in blocks) + "\n"


def _in_markdown(block: Block, stem: str) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {block.text}"
        case Text():
            return f"```text\n{block.text}\n```" if block.code else block.text
        case Items():
            return "\n".join(f"- {item}" for item in block.items)
        case Picture():
            return f"![{block.alt}]({quote(stem)}-{quote(block.name)}.svg)"
        case Grid():
            line = "|" + "".join("---:|" if at in block.numbers else "---|" for at in range(len(block.headers)))
            rows = [_bars(block.headers), line, *map(_bars, block.rows)]
            return f"**{block.caption}**\n\n" + "\n".join(rows)


def _bars(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page(blocks: Sequence[Block]) -> str:
    """The report as one HTML page."""
    title = next((html.escape(block.text) for block in blocks if isinstance(block, Heading)), "Report")
    body = "\n".join(_in_html(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _in_html(block: Block) -> str:
    match block:
        case Heading():
            return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
        case Text():
            inside = html.escape(block.text)
            return f"<pre><code>{inside}</code></pre>" if block.code else f"<p>{inside}</p>"
        case Items():
            return "<ul>\n" + "\n".join(f"<li>{html.escape(item)}</li>" for item in block.items) + "\n</ul>"
        case Picture():
            data = base64.b64encode(block.svg).decode()
            return f'<p><img src="data:image/svg+xml;base64,{data}" alt="{html.escape(block.alt)}"></p>'
        case Grid():
            return _table(block)


def _table(grid: Grid) -> str:
    def cell(tag: str, at: int, text: str, scope: str = "") -> str:
        style = ' class="number"' if at in grid.numbers else ""
        return f"<{tag}{scope}{style}>{html.escape(text)}</{tag}>"

    head = "".join(cell("th", at, text, ' scope="col"') for at, text in enumerate(grid.headers))
    rows = [
        "<tr>" + cell("th", 0, row[0], ' scope="row"') + "".join(cell("td", at, row[at]) for at in range(1, len(row)))
        + "</tr>"
        for row in grid.rows
    ]  # fmt: skip
    caption = f"<caption>{html.escape(grid.caption)}</caption>"
    return (
        f'<div class="wide"><table>\n{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody>\n</table></div>"
    )
