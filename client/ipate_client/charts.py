"""Display of documents in notebooks: small tables and inline SVG charts, with all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_DARK, _LIGHT, _WARM = "#0b6073", "#d5e3e6", "#b4540a"
_LEFT, _WIDTH = 170.0, 450.0


@dataclass(frozen=True)
class Svg:
    """Image for notebooks. ``svg`` is its source."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


def block(title: str, beside: str, *parts: str) -> str:
    """Return an HTML section with a title, a text next to the title, and these parts."""
    return f"<div><strong>{escape(title)}</strong> <small>{escape(beside)}</small>{''.join(parts)}</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table; empty if there are no rows."""
    lines = ["".join(f"<td>{escape(_text(cell))}</td>" for cell in row) for row in rows]
    if not lines:
        return ""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    return (
        f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
    )


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return an HTML table of names and values, omitting empty values."""
    known = [(name, value) for name, value in pairs if value not in (None, "")]
    cells = [f"<tr><th>{escape(name)}</th><td>{escape(_text(value))}</td></tr>" for name, value in known]
    return f"<table><tbody>{''.join(cells)}</tbody></table>"


def items(texts: Iterable[str]) -> str:
    """Return an HTML list of sentences; empty if there are none."""
    lines = "".join(f"<li>{escape(str(text))}</li>" for text in texts)
    return f"<ul>{lines}</ul>" if lines else ""


def progress(share: float) -> str:
    """Return a progress bar for a share from 0 to 1."""
    return f'<div><progress max="1" value="{share:.3f}"></progress> {100 * share:.0f} %</div>'


def budget_bars(title: str, groups: Sequence[dict[str, Any]]) -> str:
    """Return stacked bars of the used, reserved and remaining parts of each group's cap, with the promised ε."""
    parts = [*_opened(title, len(groups)), '<text x="0" y="15">used (dark), reserved (outlined), left (light)</text>']
    looks = (("used", _DARK, "none"), ("reserved", "#ffffff", _DARK), ("left", _LIGHT, "none"))
    for place, group in enumerate(groups):
        top, start = 30 + 34 * place, _LEFT
        parts.append(f'<text x="0" y="{top + 17}">{escape(group["level"])}, policy {group["policy"]}</text>')
        for part, fill, stroke in looks:
            width = _WIDTH * min(1.0, group[f"share_{part}"])
            words = f"{part}: {100 * group[f'share_{part}']:.1f} %, ε {group[f'epsilon_{part}']:.3g}"
            parts.append(
                f'<rect x="{start:.1f}" y="{top}" width="{width:.1f}" height="24" fill="{fill}" stroke="{stroke}" '
                f'stroke-dasharray="4 3"><title>{words}</title></rect>'
            )
            start += width
        parts.append(f'<text x="630" y="{top + 17}">ε {group["epsilon"]:g}</text>')
    return "".join([*parts, "</svg>"])


def intervals(
    title: str, found: Sequence[dict[str, Any]], about: str = "forecast (bar), most frequent class (line)"
) -> str:
    """Return a chart of forecasts from 0 to 1 as intervals, with measured results and the most frequent class's share.

    Forecasts on other scales appear as text.
    """
    parts = [*_opened(title, len(found)), f'<text x="0" y="15">{about}</text>']
    for place, each in enumerate(found):
        top = 30 + 34 * place
        known = [each[name] for name in ("low", "high") if each.get(name) is not None]
        words = f"{each['of']}: {_text(each.get('value'))}" + (
            f" ({_text(known[0])} to {_text(known[-1])})" if known else ""
        )
        parts.append(f'<text x="0" y="{top + 17}">{escape(str(each["of"])[:24])}</text>')
        if known and all(0 <= value <= 1 for value in known):
            low, high = (_LEFT + _WIDTH * value for value in (known[0], known[-1]))
            parts.append(f'<rect x="{_LEFT}" y="{top + 11}" width="{_WIDTH}" height="2" fill="{_LIGHT}"/>')
            parts.append(
                f'<rect x="{low:.1f}" y="{top}" width="{max(2.0, high - low):.1f}" height="24" fill="{_DARK}">'
                f"<title>{escape(words)}</title></rect>"
            )
            for name, fill in (("majority", "#000000"), ("came", _WARM)):
                if each.get(name) is not None:
                    left = _LEFT + _WIDTH * min(1.0, max(0.0, each[name]))
                    shown = f'<rect x="{left:.1f}" y="{top - 3}" width="3" height="30" fill="{fill}">'
                    parts.append(f"{shown}<title>{name}: {_text(each[name])}</title></rect>")
        parts.append(f'<text x="630" y="{top + 17}">{escape(_text(each.get("value")))}</text>')
    return "".join([*parts, "</svg>"])


def measures(measured: Mapping[str, Any]) -> str:
    """Return a chart of the model's measures that have an interval, each with its baseline if it has one."""
    found = [
        {"of": f"{each['label']} {each['of']}".strip(), "value": each["value"], "majority": each["nothing"]}
        | dict(zip(("low", "high"), each["interval"]))
        for each in measured.get("measures", [])
        if each["interval"]
    ]
    for name, value in measured.items():
        interval = measured.get("interval" if name == "accuracy" else f"{name}_interval")
        if interval:
            shown = {"of": name.replace("_", " "), "value": value, "low": interval[0], "high": interval[1]}
            majority = measured.get("majority") if name == "accuracy" else None
            found.append({**shown, "majority": (majority or {}).get("share")})
    title, about = "Measures on the test dataset", "95 % interval (bar), baseline (line)"
    return intervals(title, found, about) if found else ""


def outlook(document: Mapping[str, Any]) -> str:
    """Return a run's expected results and costs next to the actual ones, with its warnings, as HTML."""
    unit, affordable, result = document["unit"], document["affordable"], document["result"]
    share, minutes = document["share"], document["minutes"]
    pairs = [
        ("Share of every cap", None if share is None else f"{100 * share:.4g} %"),
        ("People", document["people"]),
        (f"Maximum number of {unit}", document["amount"]),
        (f"Minimum number of {unit} that budgets allow", affordable),
        (f"Released {unit}", result and result["amount"]),
        ("Expected minutes", minutes),
        ("Minutes", result and result["minutes"]),
    ]
    names = ("name", "people", "promised", "most", "used")
    costs = [tuple(each[name] for name in names) for each in document["costs"]]
    head = ("Group", "People", "Promised ε", "Largest ε of this run", "Used ε")
    return facts(pairs) + table(head, costs) + items(document["doubts"])


def card(document: Mapping[str, Any]) -> str:
    """Return a model's card as HTML: its promise, training data and measures."""
    privacy, learned = document.get("privacy") or {}, document.get("learned_from") or {}
    promises = [(each.get("level"), each.get("epsilon")) for each in privacy.get("groups") or []]
    pairs: list[tuple[str, Any]]
    pairs = [("Method", f"{privacy.get('method', '')} {privacy.get('variant') or ''}".strip())]
    pairs += [("δ", privacy.get("delta")), ("Unit of privacy", privacy.get("unit")), ("Labels", learned.get("labels"))]
    pairs += [("Purpose", document.get("purpose")), ("Contact", document.get("contact"))]
    return facts(pairs) + table(("Level", "ε"), promises) + measures(document.get("evaluation") or {})


def bars(title: str, rows: Sequence[tuple[str, float, float, float]]) -> str:
    """Return a bar chart of named numbers, each with its interval."""
    most = max([1e-12, *(high for _name, _value, _low, high in rows)])
    parts = _opened(title, len(rows))
    for place, (name, value, low, high) in enumerate(rows):
        top, scale = 30 + 34 * place, _WIDTH / most
        left, right = (_LEFT + scale * max(0.0, end) for end in (low, high))
        parts += [
            f'<text x="0" y="{top + 17}">{escape(name[:24])}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{scale * max(0.0, value):.1f}" height="24" fill="{_LIGHT}"/>',
            f'<rect x="{left:.1f}" y="{top + 11}" width="{max(1.0, right - left):.1f}" height="2" fill="{_DARK}"/>',
            f'<text x="630" y="{top + 17}">{_text(value)}</text>',
        ]
    return "".join([*parts, "</svg>"])


def _opened(title: str, rows: int) -> list[str]:
    size = f'width="720" height="{30 + 34 * rows}"'
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13" role="img">'
    return [f"{opened}<title>{escape(title)}</title>"]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
