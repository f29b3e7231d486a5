// A file that is written at the end of long work: its folder is looked at before.
#pragma once

#include <string>

namespace headroom::cli {

// Throws WriteError if the file's folder does not exist. An empty name is no file.
void check_folder_of(const std::string& file);

}  // namespace headroom::cli
