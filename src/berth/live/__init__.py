"""The live scheduler: its core, engines, service and client."""
