"""Selection (ESDP): which channels to open when the gain of each is unknown."""
