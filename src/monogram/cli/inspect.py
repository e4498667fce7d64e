"""`monogram inspect`: the header of a model file; the weights are not read."""

from __future__ import annotations

import os
from typing import Annotated, Any, TypeAlias

import typer

from monogram.cli.output import print_json, print_table
from monogram.cli.shared_options import Json

Lines: TypeAlias = list[tuple[str, str]]


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file, as written by fit.")],
    as_json: Json = False,
) -> None:
    """Show the header of a model file, without loading the model.

    The header is compared with its checksum; the weights are not read.
    """
    from monogram import store

    header = store.read_header(model)
    size = os.stat(model).st_size
    if as_json:
        print_json({"file": model, "bytes": size} | header)
    else:
        print_table([{"what": name, "value": value} for name, value in _lines(model, size, header)])


def _lines(path: str, size: int, header: dict[str, Any]) -> Lines:
    from monogram.engine.runtime.memory import show

    lines: Lines = [("file", path), ("size", show(size)), ("model", str(header.get("model", "unknown")))]
    lines += [(f"  {name}", str(value)) for name, value in _part(header, "parameters").items()]
    lines += [(name, f"{header[name]:,}") for name in ("users", "items", "events") if isinstance(header.get(name), int)]
    lines += [(name, str(header[name])) for name in ("weights", "merge") if name in header]
    lines += [("order of events", _order(header))] if "events" in header else []
    lines += [
        (f"measured: {name}", f"{value:.4f}" if isinstance(value, float) else str(value))
        for name, value in _part(header, "metrics").items()
    ]
    lines += [(f"pruned: {name}", str(value)) for name, value in _part(header, "pruning").items()]
    return lines + _report(_part(header, "report"))


def _order(header: dict[str, Any]) -> str:
    """Whether the log in the file has times or an order, by which the events of a history are weighted."""
    if header.get("order") == "times":
        unit = header.get("time_unit")
        return f"by times, in {unit}" if unit else "by times"
    return "by rows" if header.get("order") == "rows" else "not known"


def _report(report: dict[str, Any]) -> Lines:
    from monogram.engine.runtime.memory import show

    lines: Lines = [(name, str(report[name])) for name in ("solver", "dtype", "threads") if name in report]
    seconds = _part(report, "seconds")
    if seconds:
        stages = ", ".join(f"{stage} {value:.2f}" for stage, value in seconds.items() if value >= 0.005)
        lines.append(("seconds", f"{sum(seconds.values()):.2f}" + (f" ({stages})" if stages else "")))
    lines += [
        (label, show(report[name]))
        for label, name in (("planned", "planned_bytes"), ("peak", "peak_bytes"))
        if report.get(name) is not None
    ]
    if report.get("residual") is not None:
        lines.append(("residual", f"{report['residual']:.1e}"))
    if report.get("gap") is not None:
        lines.append(("candidates of an item", str(report.get("neighbours"))))
        lines.append(("gain of twice as many", f"{report['gap']:.2%}"))
    if report.get("unit") is not None:
        lines.append(("factor of the users' weights", f"{report['unit']:.6g}"))
    if report.get("rank") is not None:
        lines.append(("rank", str(report["rank"])))
    if report.get("changes"):
        lines.append(("changes since the fit", f"{report['changes']:,}"))
    if report.get("device"):
        lines.append(("device", str(report["device"])))
    if isinstance(report.get("metrics"), list) and report["metrics"]:
        lines.append((f"best {report.get('metric')}", f"{max(report['metrics']):.4f}"))
    if report.get("validation"):
        lines.append(("validation", str(report["validation"])))
    if report.get("note"):
        lines.append(("note", str(report["note"])))
    epochs = report.get("objectives")
    if isinstance(epochs, list) and epochs:
        lines.append(("objective", f"{epochs[-1]:.6g}" + (f", after {len(epochs)} epochs" if len(epochs) > 1 else "")))
    return lines


def _part(header: dict[str, Any], name: str) -> dict[str, Any]:
    part = header.get(name)
    return part if isinstance(part, dict) else {}
