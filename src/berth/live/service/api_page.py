"""The page `/v1/docs`: every request of the API, made from its schema. It has no script, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

__all__ = ["api_page"]

PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>API · berth</title>
  <link rel="icon" href="data:,">
  <link rel="stylesheet" href="/style.css">
</head>
<body>
  <header><a class="brand" href="/">berth</a></header>
  <main>
    <h1>API, version {version}</h1>
    <p>The schema, for programs: <a href="/v1/openapi.json">/v1/openapi.json</a>.</p>
    <table>
      <thead><tr><th>request</th><th>what it does</th><th>parameters</th><th>body</th></tr></thead>
      <tbody>
{rows}
      </tbody>
    </table>
  </main>
</body>
</html>
"""


def api_page(schema: Mapping[str, Any]) -> str:
    """The page of an OpenAPI schema."""
    return PAGE.format(version=escape(schema["info"]["version"]), rows="\n".join(_rows(schema["paths"])))


def _rows(paths: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, told in methods.items():
            names = [one["name"] + ("" if one.get("required") else "?") for one in told.get("parameters", ())]
            content = told.get("requestBody", {}).get("content", {})
            bodies = [_named(kind.get("schema", {})) for kind in content.values()]
            cells = [f"{method.upper()} {path}", told.get("description", ""), ", ".join(names), ", ".join(bodies)]
            kinds = ["", ' class="wide"', ' class="wide"', ""]
            yield "<tr>" + "".join(f"<td{k}>{escape(c)}</td>" for k, c in zip(kinds, cells, strict=True)) + "</tr>"


def _named(schema: Mapping[str, Any]) -> str:
    """The name that the schema gives to a body."""
    several = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if several:
        return " or ".join(_named(one) for one in several)
    if schema.get("type") == "array":
        return f"list of {_named(schema.get('items', {}))}"
    return str(schema.get("$ref", schema.get("type", "any"))).rpartition("/")[2]
