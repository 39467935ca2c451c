//# stdout: dates: 2024-01-31 1999-12-25
//# stdout: replaced: the [flood] swept over the [land]
//# stdout: words: 8
//# stdout: bad pattern: refused
//# stdout: back reference: abcabc yes, abcabd no
/* std::regex: hundreds of template instances that several classes share. */
#include <cstdio>
#include <iterator>
#include <regex>
#include <string>

int main() {
  const std::string log = "from 2024-01-31 to 1999-12-25, not 24-1-3";
  const std::regex date("(\\d{4})-(\\d{2})-(\\d{2})");
  std::printf("dates:");
  for (std::sregex_iterator at(log.begin(), log.end(), date), end; at != end; ++at)
    std::printf(" %s", at->str().c_str());
  std::printf("\nreplaced: %s\n",
              std::regex_replace(std::string("the flood swept over the land"), std::regex("\\b(fl|l)(\\w+)"), "[$1$2]").c_str());
  const std::string text = "he who saw the deep, the country's foundation";
  const std::regex word("[[:alpha:]]+");
  std::printf("words: %td\n", std::distance(std::sregex_iterator(text.begin(), text.end(), word), std::sregex_iterator()) - 1);
  try {
    std::regex broken("(unclosed");
  } catch (const std::regex_error &) {
    std::puts("bad pattern: refused");
  }
  const std::regex twice("(\\w+)\\1");
  std::printf("back reference: abcabc %s, abcabd %s\n", std::regex_match("abcabc", twice) ? "yes" : "no",
              std::regex_match("abcabd", twice) ? "yes" : "no");
}
