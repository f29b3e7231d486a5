#include "programs.h"

namespace headroom::coverage {

Cases container_cases() {
  return {
      {"Sequential", "",
       [](Trial& t) -> Outputs {
         auto net = t.make([] {
           return nn::Sequential(nn::Linear(4, 6), nn::ReLU(), nn::Dropout(0.3), nn::Linear(6, 2));
         });
         return net->forward(t.x({3, 4}));
       }},
      {"NamedAnyModule", "",
       [](Trial& t) -> Outputs {
         auto net = t.make([] {
           return nn::Sequential({nn::NamedAnyModule("in", nn::Linear(4, 6)),
                                  nn::NamedAnyModule("out", nn::Linear(6, 2))});
         });
         return net->forward(t.x({3, 4}));
       }},
      {"AnyModule", "",
       [](Trial& t) -> Outputs {
         nn::AnyModule any(t.build<nn::Linear>(4, 6));
         return any.forward(t.x({3, 4}));
       }},
      {"ModuleList", "",
       [](Trial& t) -> Outputs {
         auto list = t.make([] { return nn::ModuleList(nn::Linear(4, 4), nn::Linear(4, 2)); });
         Tensor x = t.x({3, 4});
         for (const auto& module : *list) x = module->as<nn::Linear>()->forward(x);
         return x;
       }},
      {"ModuleDict", "",
       [](Trial& t) -> Outputs {
         auto dictionary = t.make([] {
           nn::ModuleDict made;
           made->update({{"in", nn::Linear(4, 6).ptr()}, {"act", nn::Tanh().ptr()}});
           return made;
         });
         const Tensor inner = dictionary["in"]->as<nn::Linear>()->forward(t.x({3, 4}));
         return dictionary["act"]->as<nn::Tanh>()->forward(inner);
       }},
      {"ParameterList", "",
       [](Trial& t) -> Outputs {
         auto list = t.make([] {
           return nn::ParameterList(torch::randn({4, 5}), torch::randn({5}));
         });
         return t.x({3, 4}).mm(list[0]) + list[1];
       }},
      {"ParameterDict", "",
       [](Trial& t) -> Outputs {
         auto dictionary = t.make([] {
           nn::ParameterDict made;
           made->insert("weight", torch::randn({4, 5}));
           return made;
         });
         return t.x({3, 4}).mm(dictionary["weight"]);
       }},
      {"Functional", "",
       [](Trial& t) -> Outputs {
         auto module = t.make([] { return nn::Functional([](Tensor x) { return x.sin() * 2; }); });
         return module->forward(t.x({3, 4}));
       }},
      {"Identity", "", on_x<nn::Identity>({3, 4})},
      {"Flatten", "", on_x<nn::Flatten>({2, 3, 4, 5})},
      {"Flatten", "of some dimensions",
       on_x<nn::Flatten>({2, 3, 4, 5}, nn::FlattenOptions().start_dim(0).end_dim(2))},
      {"Unflatten", "", on_x<nn::Unflatten>({3, 8}, nn::UnflattenOptions(1, {2, 4}))},
      {"Dropout", "", on_x<nn::Dropout>({3, 5})},
      {"Dropout", "in place", in_place<nn::Dropout>({3, 5}, nn::DropoutOptions(0.2).inplace(true))},
      {"Dropout", "of everything", on_x<nn::Dropout>({3, 5}, nn::DropoutOptions(1.0))},
      {"Dropout", "of nothing", on_x<nn::Dropout>({3, 5}, nn::DropoutOptions(0.0))},
      {"Dropout", "evaluating", evaluating<nn::Dropout>({3, 5})},
      {"Dropout2d", "", on_x<nn::Dropout2d>({2, 3, 4, 5})},
      {"Dropout2d", "in place",
       in_place<nn::Dropout2d>({2, 3, 4, 5}, nn::Dropout2dOptions(0.2).inplace(true))},
      {"Dropout3d", "", on_x<nn::Dropout3d>({2, 3, 2, 4, 5})},
      {"AlphaDropout", "", on_x<nn::AlphaDropout>({3, 5})},
      {"AlphaDropout", "in place",
       in_place<nn::AlphaDropout>({3, 5}, nn::AlphaDropoutOptions(0.2).inplace(true))},
      {"FeatureAlphaDropout", "", on_x<nn::FeatureAlphaDropout>({2, 3, 4, 5})},
  };
}

}  // namespace headroom::coverage
