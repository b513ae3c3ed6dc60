import numpy as np
from numpy.typing import NDArray

def start_times(
    durations: NDArray[np.int64],
    resources: NDArray[np.int32],
    positions: NDArray[np.int64],
    predecessor_offsets: NDArray[np.int64],
    predecessors: NDArray[np.int32],
    first_ready: NDArray[np.uint8],
    /,
) -> NDArray[np.int64]: ...
