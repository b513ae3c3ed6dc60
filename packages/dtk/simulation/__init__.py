"""The event core: integer nanoseconds, resources with an order, a Python oracle and a native engine."""
