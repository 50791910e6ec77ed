"""The page as a single HTML file without external resources.

The page's policy (Content-Security-Policy) names its own scripts and style by their digests and forbids all other
sources, so that malicious records cannot make the page load or send anything. Recorded content is data: JSON that the
page's script inserts as text; only the title is part of the markup, escaped.
"""

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import jinja2
from markupsafe import Markup

from analysis.report.document import Document
from analysis.tables import plain

SCRIPTS = ("data.js", "tables.js", "charts.js", "explorer.js", "main.js")


@dataclass(frozen=True)
class Part:
    """A place of a section.

    Attributes:
        kind: the function that draws it: headline, findings, sheet, reason, curves, bars, explorer or provenance.
        of: name of the fact to draw.
        closed: the title under which the place is folded; empty: it is open.
    """

    kind: str
    of: str
    closed: str = ""


@dataclass(frozen=True)
class ReportSection:
    """A section of the page, displayed if one of its parts has content."""

    id: str
    head: str
    parts: tuple[Part, ...]
    about: str = ""


SECTIONS = (
    # Results.
    ReportSection(
        "results-section", "Results", (Part("headline", ""), Part("findings", ""), Part("sheet", "overhead"))
    ),
    ReportSection("targets-section", "Time to accuracy", (Part("sheet", "targets"), Part("reason", "no_targets"))),
    # Explanation of the results.
    ReportSection(
        "curves-section",
        "Curves",
        (Part("curves", "curves"),),
        "Drag in a figure to zoom, double-click to see all; with several seeds, bands are 95% intervals of the mean.",
    ),
    ReportSection("stages-section", "Time and bytes by stage", (Part("bars", "stages"), Part("reason", "no_stages"))),
    ReportSection(
        "rounds-section",
        "Round explorer",
        (Part("explorer", ""),),
        "One line per client, with a bar from each question to its answer. Hatched: no answer, or a late one.",
    ),
    ReportSection("losses-section", "Losses, refusals and attacks", (Part("sheet", "losses"), Part("sheet", "events"))),
    ReportSection(
        "metrics-section",
        "Multi-round privacy",
        (Part("curves", "metrics"),),
        "Multi-round privacy T, fairness gap F and cardinality C of Multi-RoundSecAgg after each round. The weak T "
        "after the last round is in the table of results.",
    ),
    ReportSection("ledger-section", "Privacy ledger", (Part("curves", "ledger"),)),
    # The runs.
    ReportSection(
        "runs-section",
        "Runs and settings",
        (
            Part("sheet", "runs"),
            Part("sheet", "differences"),
            Part("sheet", "clients"),
            Part("sheet", "common", "Settings common to all runs"),
        ),
    ),
    ReportSection("provenance-section", "Provenance of the numbers", (Part("provenance", ""),)),
)
"""Sections in the order of the page: results, their explanation, the runs."""


def render(document: Document, *, live: bool = False) -> str:
    """Return the page as HTML.

    Args:
        document: the content.
        live: whether the page repeatedly requests its data from its server instead of containing them.
    """
    script, style, plotting = _script(), _page("report.css"), _plotting()
    own, library = _digest(script), plotting.digest
    policy = [
        "default-src 'none'",
        f"script-src {own} {library}",
        f"style-src {_digest(style)} {_digest('')}",  # Plotly fills an empty sheet, rule by rule
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if live else []),
    ]
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        _page("report.html.j2")
    )
    return template.render(
        title=document.title,
        policy="; ".join(policy),
        live="yes" if live else "no",
        sections=SECTIONS,
        facts=_data("null" if live else json.dumps(plain(document.facts), ensure_ascii=False, allow_nan=False)),
        rounds=[] if live else [Markup(base64.b64encode(block).decode()) for block in document.rounds],
        plotting=Markup(plotting.packed),
        script=Markup(script),
        style=Markup(style),
    )


def _data(text: str) -> Markup:
    """Return JSON as the content of a script element, without characters that end it or begin a comment."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _digest(text: str) -> str:
    """Return the source of a policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _page(name: str) -> str:
    return (files("analysis.report") / "page" / name).read_text(encoding="utf-8")


def _script() -> str:
    """Return the page's own script, in a scope of its own."""
    parts = "\n".join(_page(name) for name in SCRIPTS)
    return f'\n(() => {{\n"use strict";\n{parts}\n}})();\n'


@dataclass(frozen=True)
class _Library:
    packed: str
    digest: str


@cache
def _plotting() -> _Library:
    """Return Plotly's script from the Python package: gzipped, in base64."""
    script = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    packed = base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()
    return _Library(packed, f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'")
