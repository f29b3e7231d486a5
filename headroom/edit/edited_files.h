// Files of the user that a job reads changed, and that he gets back as they were.
//
// Before the first change the original is kept beside, as FILE.headroom-before, and held locked
// while we live: two runs never change one file, and what a killed run left is found by the next.
// A file that somebody else changed meanwhile is left as he wants it, and the original is then kept
// as FILE.headroom-original.
//
//   tell(restore_leftovers(mapped_files(maps)));  // of a killed run, before they are read
//   EditedFiles files;
//   files.put(changed.files);                // throws WriteError, BusyError
//   tell(files.put_back());                  // the destructor does it too, without a word
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace headroom::edit {

// Puts back what a run that was killed left changed; one sentence for each. Throws BusyError if
// such a run is still alive.
std::vector<std::string> restore_leftovers(const std::vector<std::filesystem::path>& files);

class EditedFiles {
 public:
  EditedFiles() = default;
  ~EditedFiles();
  EditedFiles(const EditedFiles&) = delete;
  EditedFiles& operator=(const EditedFiles&) = delete;

  // Each with its whole new content; those of earlier calls that are not named get their originals
  // back. Throws WriteError, also for a file that somebody else has changed since, and BusyError
  // for one that another run has changed.
  void put(const std::map<std::filesystem::path, std::string>& files);

  // One sentence for each file that could not be put back as it was.
  std::vector<std::string> put_back();

 private:
  struct File {
    std::string original, ours;
    int lock = -1;  // descriptor of the kept original
  };
  std::map<std::filesystem::path, File> files_;

  File& begin(const std::filesystem::path& path);
};

}  // namespace headroom::edit
