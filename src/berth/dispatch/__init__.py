"""The live scheduler's core: events in, commands out; no IO and no clock."""
