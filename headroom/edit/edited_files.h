// Changes files of the user for a job, and restores the originals afterwards.
//
// Before the first change it keeps the original beside the file, as FILE.headroom-before, with a
// lock that lasts as long as this process: two runs never change the same file, and the next run
// finds what a killed run left. A file that another program changed meanwhile stays as it is, and
// the original is kept as FILE.headroom-original.
//
//   tell(restore_leftovers(mapped_files(maps)));  // after a killed run, before reading them
//   EditedFiles files;
//   files.put(changed.files);                // throws WriteError, BusyError
//   tell(files.put_back());                  // the destructor does the same silently
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "headroom/base/descriptor.h"

namespace headroom::edit {

// Restores files that a killed run left changed; one sentence for each. Throws BusyError if that
// run is still alive.
std::vector<std::string> restore_leftovers(const std::vector<std::filesystem::path>& files);

class EditedFiles {
 public:
  EditedFiles() = default;
  ~EditedFiles();
  EditedFiles(const EditedFiles&) = delete;
  EditedFiles& operator=(const EditedFiles&) = delete;

  // Writes the whole new content of each file; files of earlier calls that are not named get their
  // originals back. Throws WriteError, also for a file that another program changed since, and
  // BusyError for a file that another run is changing.
  void put(const std::map<std::filesystem::path, std::string>& files);

  // One sentence for each file that could not be restored.
  std::vector<std::string> put_back();

 private:
  struct File {
    std::string original, ours;
    Descriptor lock;  // of the kept original
  };
  std::map<std::filesystem::path, File> files_;

  File& begin(const std::filesystem::path& path);
};

}  // namespace headroom::edit
