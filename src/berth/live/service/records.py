"""Job records as rows of a table, and again."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from berth.live.core.records import JobRecord

__all__ = ["read_record", "row_of"]

_RECORD = TypeAdapter(JobRecord)


def row_of(record: JobRecord) -> dict[str, Any]:
    """The row of a job."""
    job = record.job
    return {
        "id": job.id,
        "number": record.number,
        "phase": record.phase,
        "owner": job.user,
        "team": job.team,
        "queue": job.queue,
        "type": job.type,
        "body": _RECORD.dump_json(record).decode(),
    }


def read_record(body: str) -> JobRecord:
    """The record of a row."""
    return _RECORD.validate_json(body)
