//# flags: -std=c++17
//# stdout: made 3 directories, 4 files
//# stdout: found: a/b/c/3.txt a/b/2.txt a/1.txt a/0.txt
//# stdout: size of 3.txt: 12
//# stdout: renamed: yes, copied: yes
//# stdout: missing: No such file or directory
//# stdout: removed 6
/* std::filesystem, whose objects are made inside the library and destroyed here. */
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

int main() {
  fs::create_directories("a/b/c");
  std::vector<fs::path> directories = {"a", "a", "a/b", "a/b/c"};
  for (size_t i = 0; i < directories.size(); i++)
    std::ofstream(directories[i] / (std::to_string(i) + ".txt")) << std::string(i * 4, 'x');
  std::vector<std::string> found;
  int made = 0;
  for (const auto &entry : fs::recursive_directory_iterator("a"))
    if (entry.is_directory())
      made++;
    else
      found.push_back(entry.path().string());
  std::sort(found.rbegin(), found.rend(), [](const auto &a, const auto &b) { return a[a.size() - 5] < b[b.size() - 5]; });
  std::printf("made %d directories, %zu files\nfound:", made + 1, found.size());
  for (const auto &path : found)
    std::printf(" %s", path.c_str());
  std::printf("\nsize of 3.txt: %ju\n", fs::file_size("a/b/c/3.txt"));
  fs::rename("a/0.txt", "a/zero.txt");
  fs::copy("a/1.txt", "a/one.txt");
  std::printf("renamed: %s, copied: %s\n", fs::exists("a/zero.txt") && !fs::exists("a/0.txt") ? "yes" : "no",
              fs::file_size("a/one.txt") == 4 ? "yes" : "no");
  fs::remove("a/one.txt");
  try {
    fs::file_size("a/none");
  } catch (const fs::filesystem_error &error) {
    std::printf("missing: %s\n", error.code().message().c_str());
  }
  fs::remove("a/zero.txt");
  std::printf("removed %ju\n", fs::remove_all("a"));
}
