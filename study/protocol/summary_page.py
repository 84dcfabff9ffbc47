"""Writes `docs/summary.md` from the types of `study.protocol.summary`: `python -m study.protocol.summary_page`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydantic.json_schema import models_json_schema

from study.protocol.summary import StudySummary

PAGE = Path(__file__).resolve().parents[2] / "docs" / "summary.md"
HEAD = """# summary.json

Rewritten in one step after every event of a trial; `--json` prints it at the end. A number that is not finite is null.

This page is made of the docstrings in `study/protocol/summary.py` by `python -m study.protocol.summary_page`.
"""
TABLES = ("StudySummary", "TrialSummary")
WORDS = {"string": "text", "boolean": "true or false"}


def page() -> str:
    """The page as it should be."""
    _, schema = models_json_schema([(StudySummary, "serialization")])
    parts = schema["$defs"]
    study, trial = (["| field | type | what |", "|---|---|---|", *_rows(name, parts)] for name in TABLES)
    return "\n".join([HEAD, *study, "", "Each of `trials`:", "", *trial, ""])


def _rows(part: str, parts: dict[str, Any], prefix: str = "") -> list[str]:
    """A row for every field, followed by those of the part that it is, under dotted names."""
    rows = []
    for name, field in parts[part]["properties"].items():
        what = " ".join(field.get("description", "").split())
        rows.append(f"| `{prefix}{name}` | {_type(field, parts)} | {what} |")
        for kind, after in (("items", "[]"), ("additionalProperties", ".NAME"), ("", "")):
            inner = _part(field.get(kind, {}) if kind else field)
            if "properties" in parts.get(inner, {}) and inner not in TABLES:
                rows += _rows(inner, parts, f"{prefix}{name}{after}.")
    return rows


def _part(field: Any) -> str:
    """The part that a field is, as far as it is one, or null."""
    if not isinstance(field, dict):
        return ""
    return next((ref for one in (field, *field.get("anyOf", ())) if (ref := one.get("$ref"))), "").rpartition("/")[2]


def _type(field: dict[str, Any], parts: dict[str, Any]) -> str:
    """A JSON schema in words.

    >>> _type({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {})
    'integer or null'
    >>> _type({"type": "object", "additionalProperties": {"type": "number"}}, {})
    'object of number'
    """
    if "$ref" in field:
        return _type(parts[field["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in field:
        return " or ".join(_type(one, parts) for one in field["anyOf"])
    if "const" in field:
        return f"{field['const']}"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        inner = next(iter(field.get("prefixItems", ())), field.get("items", {}))
        return f"list of {_type(inner, parts)}"
    if field.get("type") == "object":
        values = field.get("additionalProperties")
        return f"object of {_type(values, parts)}" if isinstance(values, dict) else "object"
    return WORDS.get(field["type"], field["type"]) if "type" in field else "any value"


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
