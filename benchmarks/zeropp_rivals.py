"""Plan ZeroPP and its rivals on clusters of 64 A800 GPUs, and print how much faster it is: see `--help`.

Every method is tuned over its own space by the same search, for the same model, batch and memory, with the
same cost model (simulated). A cell says how much faster ZeroPP is than the rival's best, and what that holds.
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

from dtk.zeropp.planning.config import PlanConfig
from dtk.zeropp.planning.document import plan_data
from dtk.zeropp.planning.planner import plan
from dtk.zeropp.planning.problem import RIVALS
from dtk.zeropp.planning.request import make_problem

_GIB = 2**30


def main() -> None:
    """Plan every case, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", default="megatron-7.5b,gpt3-13b,opt-30b,opt-66b")
    parser.add_argument("--clusters", default="64xA800-200Gb,64xA800-800Gb")
    parser.add_argument("--global-batches", default="64,128,512", help="sequences of an iteration")
    parser.add_argument("--sequence-tokens", type=int, default=2048)
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--stack", help="the software; by default that of dtk zeropp plan")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that is known there as well")
    options = parser.parse_args()
    rivals = options.rivals.split(",")
    print(header(rivals))
    found = []
    axes = (options.clusters.split(","), options.global_batches.split(","), options.models.split(","))
    for cluster, batch, model in itertools.product(*axes):
        start = time.monotonic()
        values = {
            "model": model,
            "cluster": cluster,
            "global_batch": int(batch),
            "sequence_tokens": options.sequence_tokens,
            "rivals": rivals,
        }
        config = PlanConfig.model_validate(values | ({"stack": options.stack} if options.stack else {}))
        data = plan_data(plan(make_problem(config), rivals=config.rivals))
        print(row(data, rivals), flush=True)
        print(f"{model} on {cluster}, B={batch}: {time.monotonic() - start:.0f} s", file=sys.stderr)
        found.append(data)
    if options.json:
        options.json.write_text(json.dumps({"basis": "simulated", "plans": found}, indent=1) + "\n")


def header(rivals: list[str]) -> str:
    """Return the first lines of the table."""
    names = ["cluster", "B", "model", "ZeroPP", "plan", "2sUb > 9h", *rivals]
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"


def row(data: dict[str, Any], rivals: list[str]) -> str:
    """Return one case."""
    problem, best = data["problem"], data["best"]
    cells = [problem["cluster"], str(problem["global_batch"]), problem["model"]]
    if best is None:
        return f"| {' | '.join(cells)} | does not fit |"
    plan_text = (
        f"P{best['pipeline_parallel']} V{best['chunks']} U{best['unit']} D{best['shard_ranks']} "
        f"b{best['micro_batch']}{'' if best['recomputation'] == 'none' else ' ' + best['recomputation']}"
    )
    meets = "yes" if data["unit"]["meets_condition"] else "no"
    cells += [f"{best['iteration_s']:.3f} s, {_gib(best)}, MFU {best['utilisation']:.0%}", plan_text, meets]
    by_name = {each["method"]: each for each in data["rivals"]}
    cells += [_cell(by_name[name]) for name in rivals]
    return f"| {' | '.join(cells)} |"


def _cell(rival: dict[str, Any]) -> str:
    if not rival["fits"]:
        return "does not fit"
    return f"{rival['speed_up_of_zeropp'] - 1:+.0%}, {_gib(rival)}"


def _gib(values: dict[str, Any]) -> str:
    return f"{values['peak_bytes'] / _GIB:.0f} GiB"


if __name__ == "__main__":
    main()
