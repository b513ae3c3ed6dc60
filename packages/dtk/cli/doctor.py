"""`dtk doctor`: what this machine has and what dtk makes of it."""

__all__ = ["doctor"]


def doctor() -> None:
    """Say what this machine has and what dtk makes of it."""
