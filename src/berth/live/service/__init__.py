"""The running scheduler: store, pump, API and pages around the dispatcher."""
