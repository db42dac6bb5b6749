"""The record of an attempt in the cluster: a ConfigMap, which owns the attempt's pods.

The record is created before the first pod, with a name that the attempt determines. So the API server itself refuses
to start an attempt twice, and the next berth finds what was asked for. When an attempt has ended, its record keeps
the end; the garbage collector removes the pods with the record.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from berth.errors import BerthError, InvalidInput
from berth.live.core.events import Failed, Finished, read_event, write_event
from berth.live.core.jobs import Place

__all__ = ["ATTEMPT", "COUNTED", "JOB", "RANK", "RECORD", "ROLE", "STORE", "Key"]
__all__ += ["Record", "go_name", "is_go", "name_of", "read_record"]

Key = tuple[str, int]
PREFIX = "berth.io/"
STORE, RECORD, PART = f"{PREFIX}store", f"{PREFIX}record", f"{PREFIX}part"
"""Labels: the store whose attempt it is, the name of the record, and what an object is to it."""
JOB, ATTEMPT, ROLE, RANK = (f"{PREFIX}{name}" for name in ("job", "attempt", "role", "rank"))
"""Annotations, as labels could not hold every id."""
COUNTED = f"{PREFIX}counted"
"""The annotation of a pod with what berth counts for it, in thousandths of each resource."""
GO = "go"


def name_of(store: str, key: Key) -> str:
    """The name of the record of an attempt; those of its pods begin with it.

    >>> name_of("s1", ("Train_7", 1)), name_of("s1", ("train-7", 1))
    ('train-7-df783841a7fe', 'train-7-2eff64e8c0e0')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", key[0].lower())[:30].strip("-")
    digest = hashlib.sha256(json.dumps([store, *key]).encode()).hexdigest()[:12]
    return f"{plain}-{digest}"


def go_name(name: str) -> str:
    """The name of the ConfigMap without which the pods of a gang do not start."""
    return f"{name}-{GO}"


@dataclass
class Record:
    """An attempt as its record and its pods show it."""

    key: Key
    name: str
    places: tuple[Place, ...]
    uid: str = ""
    asked: float = 0.0
    members: tuple[tuple[str, str, str], ...] = ()
    """Namespace, name and uid of each pod, in the order of its tasks, where berth places the pods of others."""
    end: Finished | Failed | None = None
    verdict: Finished | Failed | None = None
    """How it is to end as soon as its pods are gone."""
    # the following fields are not stored
    manifests: list[dict[str, Any]] | None = None
    """Its pods, if this process has them."""
    created: bool = False
    """Whether all of its pods were created."""
    told: bool = False
    """Whether its start was reported."""
    released: bool = False
    """Whether its pods were let go."""
    reported: bool = False
    """Whether its end was reported."""
    settled: bool = False
    """Whether the journal has its end."""
    gone: bool = False
    """Whether its record was removed by another program."""
    since: dict[str, float] = field(default_factory=dict)
    """When something was first seen."""

    @property
    def tasks(self) -> list[tuple[str, str]]:
        """Role and server of each task."""
        return [(place.role, place.server) for place in self.places for _ in range(place.count)]

    def pod(self, index: int) -> str:
        """The name of the pod of a task."""
        return f"{self.name}-{index}"

    def data(self) -> dict[str, str]:
        """What the ConfigMap holds."""
        told: dict[str, Any] = {
            "job": self.key[0],
            "attempt": self.key[1],
            "asked": self.asked,
            "places": [[place.server, place.role, place.count] for place in self.places],
            **({"members": self.members} if self.members else {}),
        }
        events = {"end": self.end, "verdict": self.verdict}
        return {"attempt": json.dumps(told), **{name: write_event(one) for name, one in events.items() if one}}

    def config_map(self, namespace: str, store: str) -> dict[str, Any]:
        """Its ConfigMap."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": labels(store, self.name, "record"),
                "annotations": {JOB: self.key[0], ATTEMPT: str(self.key[1])},
            },
            "data": self.data(),
        }

    @property
    def owner(self) -> dict[str, Any]:
        """The reference to it in what it owns."""
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": self.name, "uid": self.uid, "controller": True}


def labels(store: str, name: str, part: str) -> dict[str, str]:
    """Labels of the objects of an attempt."""
    return {"app.kubernetes.io/managed-by": "berth", STORE: store, RECORD: name, PART: part}


def is_go(config_map: dict[str, Any]) -> bool:
    """Whether a ConfigMap lets a gang go."""
    return bool((config_map["metadata"].get("labels") or {}).get(PART) == GO)


def read_record(config_map: dict[str, Any]) -> Record | None:
    """Read a record; None if it was damaged."""
    data, metadata = config_map.get("data") or {}, config_map["metadata"]
    try:
        told = json.loads(data["attempt"])
        key = str(told["job"]), int(told["attempt"])
        places = tuple(Place(str(s), str(r), int(c)) for s, r, c in told["places"])
        ends = {name: read_event(data[name]) for name in ("end", "verdict") if name in data}
        if not all(isinstance(one, Finished | Failed) for one in ends.values()):
            raise InvalidInput("an end", value=ends)
        members = tuple((str(space), str(name), str(uid)) for space, name, uid in told.get("members", ()))
        return Record(key, metadata["name"], places, metadata["uid"], float(told["asked"]), members, **ends)  # type: ignore[arg-type]
    except (KeyError, ValueError, TypeError, BerthError):
        return None
