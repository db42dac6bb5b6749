"""The running scheduler: store, journal loop, API and dashboard around the dispatcher."""
