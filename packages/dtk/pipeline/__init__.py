"""Pipeline schedules as data: made by generators, proved by the validator, timed by the simulator.

Source: ZeroPP (arXiv 2402.03791) and its peers. Import from the submodules; the time unit everywhere is the
integer nanosecond.
"""
