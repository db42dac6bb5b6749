"""A service's configuration, read for replays: its queues, limits, shares and quotas, and perhaps its servers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from berth.errors import InvalidInput
from berth.files.quantities import MILLI
from berth.files.wording import Part, checked
from berth.files.yaml_tree import read_file
from berth.live.core.jobs import Server
from berth.live.core.queues import Queues
from berth.live.engines.registry import engine_in
from berth.live.engines.simulated.cluster import Truth
from berth.live.engines.simulated.engine import ServerEntry, doubled, read_cluster
from berth.live.service.settings import QueuesSpec, ServiceSettings
from berth.live.twin.served import UNITS, ServedQueues
from berth.live.twin.streams import CLASS
from berth.model import Resource
from berth.traces.trace import MACHINE_COLUMNS, filled

__all__ = ["ClusterFile", "machines_of", "read_cluster_file"]

NO_TRUTH = "no truth: jobs run as long as the log says, over the speeds of their types"


class _Machines(Part):
    """Keys of the file that say which servers there are, and keys that say where the service listens."""

    servers: Annotated[list[ServerEntry], Field(min_length=1)] | None = None
    truth: Any = None
    host: Any = None
    port: Any = None
    names: Any = None
    proxies: Any = None


class ClusterFile(ServiceSettings, _Machines):
    """The keys of a service's settings and of a cluster file. What does not change a decision is read and left."""

    def there(self) -> list[Server]:
        """The servers of the file, or of the simulated cluster that it names; none if they are those of the log."""
        kind, _, rest = self.engine.partition(":")
        if self.servers is None and kind == "simulated" and rest and not rest.startswith("unix:"):
            cluster = read_cluster(Path(rest))
            if cluster.truth != Truth():
                raise InvalidInput(NO_TRUTH, found="a truth with spread, noise or faults", key="truth", file=rest)
            return list(cluster.servers.values())
        return [server for entry in self.servers or () for server in entry.there()]

    def served(self, stopped: bool = False, instead: str = "") -> ServedQueues:
        """Its queues, or the one that a new service has."""
        return ServedQueues(self.queues or Queues(), stopped, instead)

    def policies(self) -> dict[str, list[str]]:
        """The policy that the service runs, as a change of a rehearsal."""
        by = f" by {self.learn_by}" if self.learn_by else ""
        return {} if self.policy is None else {"policies": [f"{self.policy}{by}"]}

    def queues_as_written(self) -> dict[str, Any]:
        """Its queues for a manifest."""
        return {} if self.queues is None else {"queues": QueuesSpec.of(self.queues).model_dump(mode="json")}

    @property
    def class_label(self) -> str:
        """The label that tells the class of a server: that by which the service learns."""
        return self.learn_by or CLASS


def read_cluster_file(path: str | Path) -> ClusterFile:
    """Read a service's configuration or a cluster file; the first mistake is told with its line."""
    file = Path(path).expanduser()
    tree = read_file(file, "cluster")
    if isinstance(tree.value, dict):
        tree.value = {name: value for name, value in tree.value.items() if value is not None}
        if isinstance(engine := tree.value.get("engine"), str) and engine.startswith("simulated:"):
            tree.value["engine"] = engine_in(engine, file.parent)
    made = checked(tree, ClusterFile, lambda found: doubled(found.servers or ()))
    if made.truth is not None:
        raise InvalidInput(NO_TRUTH, value=made.truth, key="truth", file=str(file))
    return made


def machines_of(servers: Sequence[Server], resources: Sequence[Resource], class_label: str) -> pl.DataFrame:
    """The servers of a file as the machines of a log: a row each, with the class as label.

    >>> machines_of([Server("a", {"memory": 2**31 * 1000})], [Resource("memory", "GiB")], "class")["memory"].to_list()
    [2.0]
    """
    known = {name for server in servers for name in server.capacity}
    if not known & {kind.name for kind in resources}:
        expected = f"servers with a resource that jobs of the log ask for: {', '.join(kind.name for kind in resources)}"
        raise InvalidInput(expected, found=", ".join(sorted(known)) or "none", key="servers")
    columns: dict[str, list[Any]] = {
        "machine": [server.name for server in servers],
        "count": [1] * len(servers),
        "label": [server.labels.get(class_label) for server in servers],
        "speed": [server.speed for server in servers],
    }
    for kind in resources:
        if kind.name in known:
            unit = MILLI * UNITS.get(kind.unit, 1)
            columns[kind.name] = [server.capacity.get(kind.name, 0) / unit for server in servers]
    return filled(columns, MACHINE_COLUMNS, resources)
