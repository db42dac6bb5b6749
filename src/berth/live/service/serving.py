"""`berth serve`: the scheduler, its API and its dashboard in one process, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from berth.errors import InvalidInput, MissingExtra, UnknownName, did_you_mean
from berth.files.wording import Mistake, Part, by, checked, first_of, said
from berth.files.yaml_tree import Tree, read_file
from berth.live.service.settings import ServiceSettings

try:
    import uvicorn
    from fastapi import FastAPI
except ImportError as error:
    raise MissingExtra("berth serve", "serve") from error

from berth.live.core import FALLBACK
from berth.live.core.drivers import make_driver
from berth.live.engines.registry import check_engine, engine_in
from berth.live.local_token import is_loopback
from berth.live.service.app import create_app
from berth.live.service.authenticator import Authenticator, check_open, ensure_local_token
from berth.live.service.collecting import collected_apart
from berth.live.service.connections import Guarded, Listener, most_connections
from berth.live.service.database import is_new
from berth.live.service.history import History
from berth.live.service.metrics import Metrics
from berth.live.service.scheduler import Scheduler
from berth.live.service.store import Store

__all__ = ["Address", "Config", "JsonLines", "Repeats", "prepared", "read_config", "run", "serve", "service"]

GRACE = 5
"""Seconds that open requests get when the service stops."""

SWITCH = 0.0005
"""Seconds after which a thread lets another one run: the event loop waits for decisions that often (Python: 0.005)."""

log = logging.getLogger("berth.service")


def _network(value: object) -> object:
    try:
        ipaddress.ip_network(str(value))
    except ValueError:
        raise InvalidInput("an address or network such as 10.0.0.5 or 10.0.0.0/24", value=value) from None
    return value


class Address(Part):
    """Where the service listens, and the names it is called by.

    `proxies` are addresses or networks of proxies whose `X-Forwarded-For` header tells the client's address.
    """

    host: Annotated[str, Field(min_length=1), said("a host, such as 127.0.0.1")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535), said("a port from 0 to 65535")] = 8642
    names: Annotated[tuple[str, ...], Field(strict=False), said("a list of texts")] = ()
    proxies: Annotated[tuple[Annotated[str, by(_network)], ...], Field(strict=False)] = ()

    @property
    def url(self) -> str:
        """The URL of the service."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class JsonLines(logging.Formatter):
    """One line of JSON a message, with its extra fields."""

    KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({key: value for key, value in vars(record).items() if key not in self.KNOWN})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class Config(ServiceSettings, Address):
    """All keys of a configuration file."""


def read_config(file: Path | None, options: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a YAML file; options of the command line that are not None override it."""
    tree = Tree({}) if file is None else read_file(file, "configuration", may_be_empty=True)
    given = {name: value for name, value in (options or {}).items() if value is not None}
    if file is not None and "engine" not in given and isinstance(engine := tree.value.get("engine"), str):
        try:
            tree.value["engine"] = engine_in(engine, file.parent)
        except UnknownName as error:
            expected = f"one of {', '.join(error.known)}{did_you_mean(error.name, error.known)}"
            raise first_of([Mistake(("engine",), expected, engine)], tree) from None
    tree.value = {name: value for name, value in {**tree.value, **given}.items() if value is not None}
    tree.places.update({(name,): (None, None) for name in given})
    return checked(tree, Config)


@asynccontextmanager
async def service(settings: ServiceSettings, address: Address) -> AsyncIterator[tuple[Scheduler, FastAPI]]:
    """An open scheduler with its application; both are closed in order, whatever happens inside."""
    store = await asyncio.to_thread(Store, settings.store)
    try:
        if not settings.guarded:
            await asyncio.to_thread(Authenticator.at, store, address.host)  # raises before anything is started
        scheduler = await Scheduler.open(settings)
        try:
            if settings.guarded and (file := await asyncio.to_thread(ensure_local_token, store, address.url)):
                log.info("the operator token of this user is in %s", file)
            authenticator = await asyncio.to_thread(Authenticator.at, store, address.host)
            metrics = Metrics(scheduler.dispatcher.state)
            hosts = [address.host, *address.names, "localhost", "127.0.0.1", "[::1]"] if authenticator.open else None
            history = History(scheduler.dispatcher.state)
            app = create_app(scheduler, authenticator, metrics, history, hosts=hosts, names=address.names)
            beside = [asyncio.ensure_future(_count(scheduler, metrics, history))]
            beside.append(asyncio.ensure_future(metrics.watch_loop()))
            try:
                yield scheduler, app
            finally:
                for task in beside:
                    task.cancel()
                for task in beside:
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
        finally:
            await scheduler.close()
    finally:
        await asyncio.to_thread(store.close)


async def _count(scheduler: Scheduler, metrics: Metrics, history: History) -> None:
    async for written in scheduler.subscribe():
        metrics.note(written.event)
        history.note(written.event)


def prepared(settings: ServiceSettings, address: Address) -> ServiceSettings:
    """The settings to serve with; invalid ones are refused before anything is created."""
    if settings.policy not in (None, FALLBACK):
        make_driver(str(settings.policy), settings.seed, ())
    check_engine(settings.engine)
    if is_new(settings.store) and not settings.guarded:
        check_open(address.host)
    simulated = settings.engine.partition(":")[0] == "simulated"
    if simulated and settings.engine_state is None and "://" not in settings.store:
        settings = settings.replace(engine_state=f"{settings.store}.engine")  # so that jobs outlive a restart
    return settings


async def run(
    settings: ServiceSettings, address: Address, ready: Callable[[str], None], stop: asyncio.Event | None = None
) -> None:
    """Serve until `stop` is set, or until a signal where this is the main thread; `ready` is told the URL."""
    taken = _bound(address)
    try:
        await _serve(settings, address.replace(port=taken.getsockname()[1]), taken, ready, stop or asyncio.Event())
    finally:
        taken.close()


def _bound(address: Address) -> socket.socket:
    """The listening socket, bound before anything else is done."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = Listener(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
    except OSError as error:
        found = f"{address.host}:{address.port} ({error.strerror or error})"
        raise InvalidInput("an address that is free and of this machine", found=found, key="host, port") from None
    return made


async def _serve(
    settings: ServiceSettings,
    address: Address,
    taken: socket.socket,
    ready: Callable[[str], None],
    stop: asyncio.Event,
) -> None:
    async with service(settings, address) as (scheduler, app), collected_apart():
        if not is_loopback(address.host):
            log.warning("reachable from other machines: put TLS in front of it", extra={"host": address.host})
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=GRACE,
            server_header=False,
            http=Guarded,
            ws="none",
            limit_concurrency=most_connections(),
            proxy_headers=bool(address.proxies),
            forwarded_allow_ips=list(address.proxies),
        )
        server = uvicorn.Server(config)
        running = asyncio.ensure_future(server.serve(sockets=[taken]))
        while not server.started and not running.done():
            await asyncio.sleep(0.02)
        if server.started:
            ready(address.url)
        stopped, told = asyncio.ensure_future(scheduler.wait()), asyncio.ensure_future(stop.wait())
        await asyncio.wait({running, stopped, told}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await running
        if stopped.done():  # it only stops by itself after an error
            await stopped
        stopped.cancel()
        told.cancel()


def serve(
    settings: ServiceSettings, address: Address, *, log_format: str = "text", ready: Callable[[str], None] | None = None
) -> None:
    """Serve until told to stop (SIGINT, SIGTERM): then answer open requests, write a snapshot, and exit."""
    settings = prepared(settings, address)
    sys.setswitchinterval(SWITCH)
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else plain)
    handler.addFilter(Repeats())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # uvicorn raises the signal that ended it once more, and SIGTERM would end the process before the store is closed
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run(settings, address, ready or (lambda url: None)))
    finally:
        signal.signal(signal.SIGTERM, before)


class Repeats(logging.Filter):
    """Lets each logging call emit a few warnings or errors in a period, and says how many were suppressed.

    >>> now = [0.0]
    >>> repeats = Repeats(most=2, period=10.0, clock=lambda: now[0])
    >>> record = logging.makeLogRecord({"msg": "no store", "levelno": logging.WARNING})
    >>> [repeats.filter(record) for _ in range(4)]
    [True, True, False, False]
    >>> now[0] = 11.0
    >>> repeats.filter(record), record.getMessage()
    (True, 'no store (2 similar messages suppressed)')
    """

    def __init__(self, most: int = 20, period: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._period, self._clock = most, period, clock
        self._seen: dict[tuple[str, str, int], tuple[float, int]] = {}
        """For each logging call: when its period began, and how many messages it has had since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is logged."""
        if record.levelno < logging.WARNING:
            return True
        now, key = self._clock(), (record.name, record.pathname, record.lineno)
        began, count = self._seen.get(key, (now, 0))
        if now - began >= self._period:
            if count > self._most:
                record.msg = f"{record.getMessage()} ({count - self._most} similar messages suppressed)"
                record.args = None
            began, count = now, 0
        self._seen[key] = began, count + 1
        return count < self._most
