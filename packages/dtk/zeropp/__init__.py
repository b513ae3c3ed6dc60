"""Reports on pipeline schedules: one explained, several side by side. Import from the submodules.

Source: ZeroPP (arXiv 2402.03791). It leaves out the choice of a schedule for a model and a cluster, which
needs a cost model, and the run itself.
"""
