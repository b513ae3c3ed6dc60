"""How far the cost model's predictions are from published measurements: what `docs` and claims show of it.

`judging.judge_all()` predicts every set of `sets.judged_sets()`, `misses` says why rows are far off,
`ranking` whether the model finds the best of several layouts, and `memory` compares bytes.
"""
