"""Where torch computes."""

from __future__ import annotations

from berth.errors import BerthError, MissingExtra

try:
    import torch
except ImportError as error:
    raise MissingExtra("training with torch", "train") from error

__all__ = ["check_device"]


def check_device(device: str) -> None:
    """Refuse a device that torch does not know or that is not there."""
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise BerthError(f"unknown device {device!r}: cpu, or cuda for a GPU") from error
    if kind not in ("cpu", "cuda"):
        raise BerthError(f"unknown device {device!r}: cpu, or cuda for a GPU")
    if kind == "cuda" and not torch.cuda.is_available():
        raise BerthError(f"no GPU for device {device!r}; leave it out to train on the CPU")
