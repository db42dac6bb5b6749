"""The tables of keys in the documentation are made from the models: every key of them is there, and described."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

from pydantic import BaseModel

from berth.families import FAMILIES
from berth.scenario.settings import Common, WorkloadSettings

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("key_tables", DOCS / "hooks" / "key_tables.py")
assert SPEC is not None
assert SPEC.loader is not None
key_tables = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(key_tables)


ROW = re.compile(r"^\| `(\w+)` \| [^|]* \| [^|]+ \|$", re.MULTILINE)


def test_every_key_is_in_a_table() -> None:
    keys: dict[type[BaseModel], list[str]] = {}
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for place, name in key_tables.MARK.findall(text):
            model = getattr(importlib.import_module(place), name)
            keys[model] = ROW.findall(key_tables.table(model))
        assert "<!-- keys" not in key_tables.on_page_markdown(text)
    assert keys[WorkloadSettings] == list(WorkloadSettings.model_fields)
    for family in FAMILIES.values():
        settings = family.scenario.settings
        assert {*keys[Common], *keys[settings]} == set(settings.model_fields), family.name
