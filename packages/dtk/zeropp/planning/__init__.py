"""The best configuration for a model on a cluster, why it is the best, and how its rivals do at their best.

Source: ZeroPP (arXiv 2402.03791), which leaves the choice of its sizes to the user. Here each method's whole
space of layouts is searched with the same cost model, under the same memory: `methods` names the spaces,
`search` finds the shortest iteration, `reasons` says what it is made of.
"""
