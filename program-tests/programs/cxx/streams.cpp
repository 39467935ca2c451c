//# stdin: 12 barley 3.75
//# stdin: the rest
//# stdout: 12 barley 3.75 | the rest
//# stdout: 0x00ff +3.142 1.50e+03 true        right left      octal 17
//# stdout: parsed: 1 2 3, then failed: yes
//# stdout: lines: 3
//# stdout: a custom buffer: SHOUTED
//# stdout: a custom type: <1, 2>
//# stdout: file: 5 words
//# stdout: threw: yes
//# stderr: to cerr
/* iostream: input, formatting, string and file streams, a stream buffer of our own. Locale facets are used throughout. */
#include <cctype>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>

struct Shouting : std::streambuf {
  explicit Shouting(std::ostream &to) : to(to) {}
  int overflow(int letter) override {
    to.put(static_cast<char>(std::toupper(letter)));
    return letter;
  }
  std::ostream &to;
};

struct Point {
  int x, y;
  friend std::ostream &operator<<(std::ostream &stream, const Point &point) {
    return stream << '<' << point.x << ", " << point.y << '>';
  }
};

int main() {
  int number;
  std::string word, line;
  double real;
  std::cin >> number >> word >> real;
  std::getline(std::cin >> std::ws, line);
  std::cout << number << ' ' << word << ' ' << real << " | " << line << '\n';
  std::cout << std::hex << std::showbase << std::internal << std::setfill('0') << std::setw(6) << 255 << std::dec
            << std::setfill(' ') << std::showpos << std::fixed << std::setprecision(3) << ' ' << 3.14159 << ' '
            << std::noshowpos << std::scientific << std::setprecision(2) << 1500.0 << ' ' << std::boolalpha << true
            << std::right << std::setw(13) << "right" << ' ' << std::left << std::setw(10) << "left" << std::noshowbase
            << "octal " << std::oct << 15 << std::dec << '\n';
  std::istringstream input("1 2 3 x");
  std::cout << "parsed:";
  for (const char *separator = " "; input >> number; separator = ", ")
    std::cout << (separator[1] ? " " : separator) << number;
  std::cout << ", then failed: " << (input.fail() ? "yes" : "no") << '\n';
  std::stringstream text("one\ntwo\nthree\n");
  int lines = 0;
  while (std::getline(text, line))
    lines++;
  std::cout << "lines: " << lines << std::endl;
  Shouting shouting(std::cout);
  std::ostream loud(&shouting);
  std::cout << "a custom buffer: ";
  loud << "shouted" << std::flush;
  std::cout << "\na custom type: " << Point{1, 2} << '\n';
  std::ofstream("words.txt") << "reed seal barley clay canal";
  std::ifstream file("words.txt");
  int words = 0;
  while (file >> word)
    words++;
  std::cout << "file: " << words << " words\n";
  bool threw = false;
  file.clear();
  try {
    file.exceptions(std::ios::failbit);
    file >> number;
  } catch (const std::ios_base::failure &) {
    threw = true;
  }
  std::cout << "threw: " << (threw ? "yes" : "no") << '\n';
  std::cerr << "to cerr\n";
}
