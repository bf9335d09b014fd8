"""Self-contained web pages from templates: no scripts from elsewhere, no fonts, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **values: Any) -> str:
    """Fill a template of this package. Text is escaped; charts are passed as :class:`markupsafe.Markup`."""
    environment = Environment(
        loader=PackageLoader("identica.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (Path(__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
    return environment.get_template(template).render(style=Markup(style), **values)
