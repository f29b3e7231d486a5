// Ten steps of what `headroom train KEYS...` trains, to the bit: ten_steps FOLDER KEYS...
#include <cstdio>

#include "headroom/recipe/recipe.h"
#include "headroom/recipe/result.h"
#include "headroom/train/step.h"

int main(int count, char** words) {
  namespace recipe = headroom::recipe;
  recipe::Recipe made = recipe::make({words + 2, words + count}, {c10::Device("cpu")});
  headroom::train::Step step(made.team, made.step);
  for (int i = 0; i < 10; ++i) std::printf("%g\n", step.run(made.batches.next()).loss());
  recipe::save(made, words[1]);
}
