"""Hardware: this machine's own figures."""

__all__: list[str] = []
