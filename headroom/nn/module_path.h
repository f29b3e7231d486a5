// Joins the path of a module and a name: "h.0.attn" and "weight" make "h.0.attn.weight".
#pragma once

#include <string>

namespace headroom::nn {

inline std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

}  // namespace headroom::nn
