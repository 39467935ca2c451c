// packages: libre2-dev
// archives: libre2.a
#include <iostream>
#include <re2/re2.h>
#include <re2/set.h>
#include <string>

int main() {
    std::string year, month, text = "Uruk 2900-01 and 3100-07";
    re2::StringPiece rest(text);
    while (RE2::FindAndConsume(&rest, "(\\d{4})-(\\d\\d)", &year, &month)) std::cout << year << '/' << month << '\n';
    RE2::GlobalReplace(&text, "(\\w+) (\\d+)", "\\2 \\1");
    std::cout << text << '\n';
    RE2 wrong("a(b", RE2::Quiet);
    std::cout << wrong.ok() << ' ' << wrong.error() << '\n';
    RE2 noisy("a)b");
    RE2::Set set(RE2::DefaultOptions, RE2::UNANCHORED);
    for (const char *pattern : {"clay", "bri+ck", "\\pL+"}) set.Add(pattern, nullptr);
    set.Compile();
    std::vector<int> matches;
    set.Match("a briiick", &matches);
    std::cout << matches.size() << '\n';
}
