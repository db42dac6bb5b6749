"""The running scheduler: store, journal loop, API and pages around the dispatcher."""
