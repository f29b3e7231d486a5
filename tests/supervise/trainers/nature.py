"""What kind of program this is. A user does not type it: TRAINER_NATURE holds it as JSON."""
import dataclasses
import json
import os


@dataclasses.dataclass
class Nature:
    memory: str = "card"    # or "host"
    text: str = "pytorch"   # how it says that memory is out (texts.py)
    fixed: int = 2 << 30    # bytes of weights and context
    per_sample: int = 512 << 20
    full_from: int = 0      # before this step samples are short and need half
    first_rank_more: float = 0.0  # what rank 0 needs beyond the others
    save_every: int = 0     # steps; 0: never
    swallow: int = -1       # exit with this code, and no word, when memory is out
    mishap: str = ""        # what else happens, in step 1 (loop.py)
    gate: str = ""          # wait in step `gate_step` until this file is there
    gate_step: int = 1
    leave_orphans: bool = False  # the launcher ends at once, its ranks do not

    @staticmethod
    def mine():
        return Nature(**json.loads(os.environ.get("TRAINER_NATURE", "{}")))
