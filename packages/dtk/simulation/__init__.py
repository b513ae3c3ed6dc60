"""The event core: integer nanoseconds, resources with an order, a Python oracle and a native engine.

`graph.TaskGraph` says what has to happen, `engine.start_times` when it does.
"""
