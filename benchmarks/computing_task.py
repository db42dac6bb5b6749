"""Compute under a processor quota: `computing_task.py RATE SHARE WORK SECONDS`.

Hash as many blocks as a processor of which one has the share SHARE hashes in WORK seconds, at RATE blocks a second of
processor time. The quota is such that this takes SECONDS: in every period the process computes until it has used its
quota and sleeps for the rest, as under a quota of the kernel (`cpu.max`). Unused quota is lost. Prints the seconds of
processor time that it used. Needs the standard library alone, because it starts hundreds of times.
"""

import hashlib
import sys
import time

BLOCK = bytes(16_384)
PERIOD = 0.1


def rate() -> float:
    """Blocks a second of processor time, on this machine."""
    began, digest, blocks = time.process_time(), hashlib.sha256(), 0
    while (used := time.process_time() - began) < 1.0:
        digest.update(BLOCK)
        blocks += 1
    return blocks / used


def compute(blocks: int, quota: float) -> None:
    """Hash this many blocks with this share of a processor."""
    digest = hashlib.sha256()
    while blocks > 0:
        began, before = time.monotonic(), time.process_time()
        while blocks > 0 and time.process_time() - before < quota * PERIOD:
            digest.update(BLOCK)
            blocks -= 1
        if blocks > 0:
            time.sleep(max(began + PERIOD - time.monotonic(), 0.0))


if __name__ == "__main__":
    blocks_a_second, share, work, seconds = (float(word) for word in sys.argv[1:])
    compute(round(blocks_a_second * share * work), share * work / seconds)
    print(time.process_time())
