//# flags: -std=c++20
//# stdout: words: 50000 distinct 676, most frequent 'aa'
//# stdout: sorted: 200000 values, first 6598, last 2147459739
//# stdout: map: 10000 keys, sum 499995000000
//# stdout: strings: 1088890 characters
//# stdout: heap: 1000 ascending
//# stdout: list and deque: 30000 30000
//# stdout: ranges: 0 4 16 36 64
//# stdout: formatted: 3.142 1e+100 ff
/* Containers and algorithms under load, across template instances of two files' worth of headers. */
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <list>
#include <map>
#include <memory_resource>
#include <numeric>
#include <queue>
#include <ranges>
#include <string>
#include <unordered_map>
#include <vector>

static uint32_t state = 1;
static uint32_t next() { return state = state * 1664525u + 1013904223u; }

int main() {
  std::unordered_map<std::string, int> words;
  for (int i = 0; i < 50000; i++) {
    uint32_t dice = next() >> 8;
    std::string word{static_cast<char>('a' + dice % 26), static_cast<char>('a' + dice / 26 % 26)};
    if (i % 50 == 0)
      word = "aa";
    words[word]++;
  }
  auto most = std::max_element(words.begin(), words.end(), [](auto &a, auto &b) { return a.second < b.second; });
  std::printf("words: %d distinct %zu, most frequent '%s'\n",
              std::accumulate(words.begin(), words.end(), 0, [](int sum, auto &word) { return sum + word.second; }), words.size(),
              most->first.c_str());
  std::vector<uint32_t> values(200000);
  std::generate(values.begin(), values.end(), [] { return next() >> 1; });
  std::sort(values.begin(), values.end());
  std::printf("sorted: %zu values, first %u, last %u\n", values.size(), values.front(), values.back());
  std::map<int, int64_t> map;
  for (int i = 0; i < 100000; i++)
    map[i % 10000] += int64_t{i} * 100;
  std::printf("map: %zu keys, sum %ld\n", map.size(),
              std::accumulate(map.begin(), map.end(), int64_t{0}, [](int64_t sum, auto &pair) { return sum + pair.second; }));
  std::string text;
  std::pmr::monotonic_buffer_resource pool;
  std::pmr::vector<std::pmr::string> pieces(&pool);
  for (int i = 0; i < 100000; i++)
    pieces.emplace_back("tablet" + std::to_string(i));
  for (auto &piece : pieces)
    text += piece;
  std::printf("strings: %zu characters\n", text.size());
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> heap(values.begin(), values.begin() + 1000);
  uint32_t previous = 0;
  int ascending = 0;
  for (; !heap.empty(); heap.pop())
    ascending += heap.top() >= previous, previous = heap.top();
  std::printf("heap: %d ascending\n", ascending);
  std::list<int> list;
  std::deque<int> deque;
  for (int i = 0; i < 30000; i++)
    list.push_front(i), (i % 2 ? deque.push_back(i) : deque.push_front(i));
  list.sort();
  std::printf("list and deque: %zu %zu\n", list.size(), deque.size());
  std::printf("ranges:");
  for (int square : std::views::iota(0) | std::views::transform([](int x) { return x * x; }) |
                        std::views::filter([](int x) { return x % 2 == 0; }) | std::views::take(5))
    std::printf(" %d", square);
  char buffer[64];
  auto *end = std::to_chars(buffer, buffer + 64, 3.14159, std::chars_format::fixed, 3).ptr;
  *end++ = ' ';
  end = std::to_chars(end, buffer + 64, 1e100).ptr;
  *end++ = ' ';
  end = std::to_chars(end, buffer + 64, 255, 16).ptr;
  std::printf("\nformatted: %.*s\n", static_cast<int>(end - buffer), buffer);
}
