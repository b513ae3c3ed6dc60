"""A file a schedule; `registry` knows them by name."""
