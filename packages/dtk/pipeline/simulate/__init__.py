"""How long a schedule takes and what it holds: a native engine, and a plain Python one as its oracle."""
