"""Write a report as Markdown, with its pictures as files beside it, or as one self-contained HTML page."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from monogram.errors import ParameterError
from monogram.reports.blocks import Block, Contents, Fold, Grid, GridCell, Heading, Items, Picture, Pictures, Text
from monogram.safe import whole_file

SUFFIXES = (".md", ".html")
# Light or dark as the browser is set; the pictures follow by rules of their own.
CSS = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #57606a; --shade: #f6f8fa; --page: #ffffff; --ink: #1f2328;
  --link: #0550ae; --good: #116329; --good-back: #dafbe1; --bad: #8a3800; --bad-back: #fff1e5; --neutral: #0a3069;
  --neutral-back: #ddf4ff; --absent: #57606a; --absent-back: #eaeef2; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --soft: #9198a1; --shade: #151b23; --page: #0d1117;
  --ink: #e6edf3; --link: #79c0ff; --good: #7ee787; --good-back: #12361f; --bad: #ffb77c; --bad-back: #462000;
  --neutral: #a5d6ff; --neutral-back: #0c2d4a; --absent: #9198a1; --absent-back: #212830; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 78rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--page); color: var(--ink); overflow-wrap: break-word; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
h3 { margin-top: 2rem; } p, ul, nav { max-width: 60rem; } a { color: var(--link); } small { color: var(--soft); }
.lead { font-size: 1.2rem; font-weight: 600; }
nav { background: var(--shade); border: 1px solid var(--line); border-radius: 6px; padding: .75rem 1rem; }
nav ul { margin: .25rem 0 0; padding-left: 1.25rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: separate; border-spacing: 0; font-size: .875rem; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th small, td small { display: block; font-size: .8em; font-weight: 400; }
thead th { border-bottom: 2px solid var(--soft); vertical-align: bottom; }
th:first-child { position: sticky; left: 0; background: var(--page); font-weight: 600; min-width: 6rem;
  max-width: 20rem; }
tbody tr:hover > * { background: var(--shade); }
.number { text-align: right; font-variant-numeric: tabular-nums; } td.number { white-space: nowrap; }
.tag { display: inline-block; border-radius: 4px; padding: 0 .4rem; white-space: nowrap; }
.good { color: var(--good); background: var(--good-back); } .bad { color: var(--bad); background: var(--bad-back); }
.neutral { color: var(--neutral); background: var(--neutral-back); }
.absent { color: var(--absent); background: var(--absent-back); }
details { border: 1px solid var(--line); border-radius: 6px; padding: .5rem .75rem; margin: 1rem 0; }
summary { cursor: pointer; font-weight: 600; }
pre { padding: .5rem .75rem; border: 1px solid var(--line); background: var(--shade); overflow-x: auto; }
figure { margin: 1rem 0; } figcaption { color: var(--soft); font-size: .875rem; max-width: 60rem; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; } .pictures img { flex: 0 1 auto; }
img { max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: 6px; }
@media (max-width: 40rem) { body { margin: 1rem auto; } h2 { margin-top: 2rem; } th:first-child { max-width: 9rem; } }
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
        files = {target.with_name(f"{target.stem}-{picture.name}.svg"): picture.svg for picture in pictures_of(blocks)}
        files[target] = markdown(blocks, target.stem).encode()
    for name, content in files.items():
        with whole_file(name) as file:
            file.write(content)
    return list(files)


def pictures_of(blocks: Sequence[Block]) -> Iterator[Picture]:
    """All pictures, those inside other blocks included."""
    for block in blocks:
        match block:
            case Picture():
                yield block
            case Pictures():
                yield from block.pictures
            case Fold():
                yield from pictures_of(block.blocks)


def anchors(blocks: Sequence[Block]) -> dict[int, str]:
    """An anchor for each heading, by its place among the blocks; as GitHub and MyST make them."""
    names: dict[int, str] = {}
    for at, block in enumerate(blocks):
        if isinstance(block, Heading):
            name = re.sub(r"[^\w\- ]", "", block.text.lower()).replace(" ", "-")
            again = sum(name == other for other in names.values())
            names[at] = f"{name}-{again}" if again else name
    return names


def _contents(blocks: Sequence[Block], at: int) -> list[tuple[str, str]]:
    """Text and anchor of each heading of level 2 below the place of a list of contents."""
    headings = ((place, blocks[place], name) for place, name in anchors(blocks).items() if place > at)
    return [(head.text, name) for _, head, name in headings if isinstance(head, Heading) and head.level == 2]


def markdown(blocks: Sequence[Block], stem: str) -> str:
    """The report as Markdown; pictures are in files whose names begin with `stem`."""
    parts = []
    for at, block in enumerate(blocks):
        if isinstance(block, Contents):
            parts.append("\n".join(f"- [{text}](#{name})" for text, name in _contents(blocks, at)))
        else:
            parts.append(_in_markdown(block, stem))
    return "\n\n".join(part for part in parts if part) + "\n"


def _in_markdown(block: Block, stem: str) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {block.text}"
        case Text():
            text = f"**{block.text}**" if block.lead else block.text
            return f"```text\n{block.text}\n```" if block.code else text
        case Items():
            return "\n".join(f"- {item}" for item in block.items)
        case Contents():
            return ""
        case Picture():
            return f"![{block.alt}]({quote(stem)}-{quote(block.name)}.svg)"
        case Pictures():
            shown = [_in_markdown(picture, stem) for picture in block.pictures]
            return "\n\n".join([*shown, *([f"*{block.caption}*"] if block.caption else [])])
        case Fold():
            return "\n\n".join([f"**{block.summary}**", *(_in_markdown(inner, stem) for inner in block.blocks)])
        case Grid():
            line = "|" + "".join("---:|" if at in block.numbers else "---|" for at in range(len(block.headers)))
            rows = [_bars(block.headers), line, *map(_bars, block.rows)]
            return f"**{block.caption}**\n\n" + "\n".join(rows)


def _bars(cells: Sequence[str | GridCell]) -> str:
    return "| " + " | ".join(_one_line(cell).replace("|", "\\|") for cell in cells) + " |"


def _one_line(cell: str | GridCell) -> str:
    if isinstance(cell, str) or not cell.detail:
        return cell if isinstance(cell, str) else cell.text
    return f"{cell.text}{' ' if cell.detail[0] in '[±(' else ', '}{cell.detail}"


def page(blocks: Sequence[Block]) -> str:
    """The report as one HTML page."""
    title = next((html.escape(block.text) for block in blocks if isinstance(block, Heading)), "Report")
    names = anchors(blocks)
    body = "\n".join(
        _navigation(_contents(blocks, at)) if isinstance(block, Contents) else _in_html(block, names.get(at, ""))
        for at, block in enumerate(blocks)
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _navigation(contents: Sequence[tuple[str, str]]) -> str:
    links = "\n".join(f'<li><a href="#{html.escape(name)}">{html.escape(text)}</a></li>' for text, name in contents)
    return f'<nav aria-label="Contents"><strong>Contents</strong>\n<ul>\n{links}\n</ul></nav>'


def _in_html(block: Block, anchor: str = "") -> str:
    match block:
        case Heading():
            place = f' id="{html.escape(anchor)}"' if anchor else ""
            return f"<h{block.level}{place}>{html.escape(block.text)}</h{block.level}>"
        case Text():
            inside = html.escape(block.text)
            style = ' class="lead"' if block.lead else ""
            return f"<pre><code>{inside}</code></pre>" if block.code else f"<p{style}>{inside}</p>"
        case Items():
            return "<ul>\n" + "\n".join(f"<li>{html.escape(item)}</li>" for item in block.items) + "\n</ul>"
        case Contents():
            return ""
        case Picture():
            return _in_html(Pictures([block]))
        case Pictures():
            images = "\n".join(map(_image, block.pictures))
            caption = f"\n<figcaption>{html.escape(block.caption)}</figcaption>" if block.caption else ""
            return f'<figure><div class="pictures">\n{images}\n</div>{caption}</figure>'
        case Fold():
            inside = "\n".join(map(_in_html, block.blocks))
            return f"<details>\n<summary>{html.escape(block.summary)}</summary>\n{inside}\n</details>"
        case Grid():
            return _table(block)


def _image(picture: Picture) -> str:
    data = base64.b64encode(picture.svg).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(picture.alt)}">'


def _table(grid: Grid) -> str:
    def cell(tag: str, at: int, content: str | GridCell, scope: str = "") -> str:
        style = ' class="number"' if at in grid.numbers else ""
        return f"<{tag}{scope}{style}>{_inside(content)}</{tag}>"

    head = "".join(cell("th", at, text, ' scope="col"') for at, text in enumerate(grid.headers))
    rows = [
        "<tr>" + cell("th", 0, row[0], ' scope="row"') + "".join(cell("td", at, row[at]) for at in range(1, len(row)))
        + "</tr>"
        for row in grid.rows
    ]  # fmt: skip
    caption = f"<caption>{html.escape(grid.caption)}</caption>"
    # A keyboard scrolls an element only where it can have the focus.
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{html.escape(grid.caption)}"><table>\n{caption}\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table></div>"
    )


def _inside(content: str | GridCell) -> str:
    if isinstance(content, str):
        return html.escape(content)
    text = html.escape(content.text)
    text = f'<span class="tag {content.tone}">{text}</span>' if content.tone and text else text
    return text + (f"<small>{html.escape(content.detail)}</small>" if content.detail else "")
