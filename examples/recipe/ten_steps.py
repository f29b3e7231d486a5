"""Ten steps of what `headroom train KEYS...` trains, to the bit: ten_steps.py FOLDER KEYS..."""
import sys

import headroom

recipe = headroom.recipe(*sys.argv[2:])
for _ in range(10):
    print(recipe.step())
recipe.save(sys.argv[1])
