"""`berth serve`: the scheduler, its API and its pages in one process, until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from pydantic import ValidationError

from berth.errors import InvalidInput, MissingExtra, did_you_mean
from berth.files.wording import plain_words
from berth.live.service.settings import ServiceSettings

try:
    import uvicorn
    from fastapi import FastAPI
except ImportError as error:
    raise MissingExtra("berth serve", "serve") from error

from berth.live.core import FALLBACK
from berth.live.core.drivers import make_driver
from berth.live.engines.registry import check_engine
from berth.live.local_token import is_loopback
from berth.live.service.app import create_app
from berth.live.service.authenticator import Authenticator, check_open, ensure_local_token
from berth.live.service.connections import Guarded, Listener, most_connections
from berth.live.service.database import is_new
from berth.live.service.history import History
from berth.live.service.metrics import Metrics
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import QueuesSpec
from berth.live.service.store import Store

__all__ = ["Address", "JsonLines", "Repeats", "read_config", "serve", "service"]

GRACE = 5
"""Seconds that open requests get when the service ends."""

log = logging.getLogger("berth.service")


@dataclass(frozen=True)
class Address:
    """Where the service listens, and the names it is called by."""

    host: str = "127.0.0.1"
    port: int = 8642
    names: tuple[str, ...] = field(default=())
    proxies: tuple[str, ...] = field(default=())
    """Addresses or networks of proxies whose `X-Forwarded-For` header tells the client's address."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidInput("a port from 0 to 65535", value=self.port, key="port")
        if not self.host:
            raise InvalidInput("a host, such as 127.0.0.1", value=self.host, key="host")
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                expected = "an address or network such as 10.0.0.5 or 10.0.0.0/24"
                raise InvalidInput(expected, value=proxy, key="proxies") from None

    @property
    def url(self) -> str:
        """How it is reached."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class JsonLines(logging.Formatter):
    """A line of JSON for each message; extra fields stand beside it."""

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


def read_config(file: Path) -> dict[str, Any]:
    """Settings from a YAML file: those of `ServiceSettings` and `Address`, checked by name."""
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("a file that can be read", found=str(error.strerror), file=file) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise InvalidInput("YAML", found=str(getattr(error, "problem", error)), file=file, line=line) from None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise InvalidInput("a mapping of settings", found=type(given).__name__, file=file)
    known = [item.name for part in (ServiceSettings, Address) for item in fields(part)]
    for key in given:
        if key not in known:
            raise InvalidInput(f"one of {', '.join(known)}{did_you_mean(key, known)}", value=key, file=file)
    if given.get("queues") is not None:
        try:
            given["queues"] = QueuesSpec.model_validate(given["queues"]).queues_()
        except ValidationError as error:
            raise plain_words(error.errors()[0]).at(key="queues", file=file) from None
        except InvalidInput as error:
            raise error.at(file=file) from None
    return given


def made(cls: Any, given: Mapping[str, Any], file: Path | None) -> Any:
    """Settings of a class, from those that were given."""
    own = {item.name: given[item.name] for item in fields(cls) if given.get(item.name) is not None}
    hints = get_type_hints(cls)
    try:
        for name, value in own.items():
            _check_kind(name, value, hints[name])
        return cls(**own)
    except InvalidInput as error:
        raise error.at(file=file) from None


def _check_kind(name: str, value: object, hint: Any) -> None:
    """A text where a text is to be, and a number where a number is."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    texts = isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
    for kind, fits, expected in (
        (str, isinstance(value, str), "a text"),
        (bool, isinstance(value, bool), "true or false"),
        (float, number, "a number"),
        (int, number and isinstance(value, int), "a whole number"),
        (tuple[str, ...], texts, "a list of texts"),
    ):
        if hint in (kind, kind | None) and not fits:
            raise InvalidInput(expected, value=value, key=name)


@asynccontextmanager
async def service(settings: ServiceSettings, address: Address) -> AsyncIterator[tuple[Scheduler, FastAPI]]:
    """An open scheduler with its application; closed in good order whatever happens inside."""
    store = await asyncio.to_thread(Store, settings.store)
    try:
        if not settings.guarded:
            await asyncio.to_thread(Authenticator.at, store, address.host)  # refuses before anything is started
        scheduler = await Scheduler.open(settings)
        try:
            if settings.guarded and (file := await asyncio.to_thread(ensure_local_token, store, address.url)):
                log.info("this user's token as operator is in %s", file)
            authenticator = await asyncio.to_thread(Authenticator.at, store, address.host)
            metrics = Metrics(scheduler.dispatcher.state)
            hosts = [address.host, *address.names, "localhost", "127.0.0.1", "[::1]"] if authenticator.open else None
            history = History(scheduler.dispatcher.state)
            app = create_app(scheduler, authenticator, metrics, history, hosts=hosts, names=address.names)
            counting = asyncio.ensure_future(_count(scheduler, metrics, history))
            try:
                yield scheduler, app
            finally:
                counting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await counting
        finally:
            await scheduler.close()
    finally:
        await asyncio.to_thread(store.close)


async def _count(scheduler: Scheduler, metrics: Metrics, history: History) -> None:
    async for written in scheduler.subscribe():
        metrics.note(written.event)
        history.note(written.event)


async def _run(settings: ServiceSettings, address: Address, ready: Callable[[str], None]) -> None:
    taken = _bound(address)
    try:
        await _serve(settings, replace(address, port=taken.getsockname()[1]), taken, ready)
    finally:
        taken.close()


def _bound(address: Address) -> socket.socket:
    """The socket that it listens on, taken before anything else is done."""
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


def _check(settings: ServiceSettings, address: Address) -> None:
    """Refuse what cannot be served, before anything is made."""
    if settings.policy not in (None, FALLBACK):
        make_driver(str(settings.policy), settings.seed, ())
    check_engine(settings.engine)
    if is_new(settings.store) and not settings.guarded:
        check_open(address.host)


async def _serve(
    settings: ServiceSettings, address: Address, taken: socket.socket, ready: Callable[[str], None]
) -> None:
    async with service(settings, address) as (scheduler, app):
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
        stopped = asyncio.ensure_future(scheduler.wait())
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await running
        if stopped.done():  # it never stops by itself but for an error
            await stopped
        stopped.cancel()


def serve(
    settings: ServiceSettings, address: Address, *, log_format: str = "text", ready: Callable[[str], None] | None = None
) -> None:
    """Serve until told to end (SIGINT, SIGTERM): then answer what is open, write a snapshot, and leave."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else plain)
    handler.addFilter(Repeats())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    _check(settings, address)
    if settings.engine == "simulated" and settings.engine_state is None and "://" not in settings.store:
        settings = replace(settings, engine_state=f"{settings.store}.engine")  # so that jobs outlive a restart
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(settings, address, ready or (lambda url: None)))


class Repeats(logging.Filter):
    """Lets each line of the program log a few warnings or errors in a period, and says how many were left out.

    >>> now = [0.0]
    >>> repeats = Repeats(most=2, period=10.0, clock=lambda: now[0])
    >>> record = logging.makeLogRecord({"msg": "no store", "levelno": logging.WARNING})
    >>> [repeats.filter(record) for _ in range(4)]
    [True, True, False, False]
    >>> now[0] = 11.0
    >>> repeats.filter(record), record.getMessage()
    (True, 'no store (2 more like this were left out)')
    """

    def __init__(self, most: int = 20, period: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._period, self._clock = most, period, clock
        self._seen: dict[tuple[str, str, int], tuple[float, int]] = {}
        """For each line of the program: when its period began, and how many messages came since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is logged."""
        if record.levelno < logging.WARNING:
            return True
        now, key = self._clock(), (record.name, record.pathname, record.lineno)
        began, count = self._seen.get(key, (now, 0))
        if now - began >= self._period:
            if count > self._most:
                record.msg = f"{record.getMessage()} ({count - self._most} more like this were left out)"
                record.args = None
            began, count = now, 0
        self._seen[key] = began, count + 1
        return count < self._most
