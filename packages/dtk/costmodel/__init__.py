"""How long training takes and what it holds: layers, collectives, transfers, stages, whole iterations.

A roofline with size-dependent efficiency gives the time of each operation on a chip, rings over the links of
the cluster give the time of each collective, and the event simulation of the pipeline schedule joins them.
What hardware and software reach of their limits stands in `constants/*.toml`, each figure with its source.
"""
