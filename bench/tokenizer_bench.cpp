// MB/s of a tokenizer on a file: tokenizer_bench TOKENIZER FILE [THREADS]. The first pass has seen no text before; the
// best one has. A core's MB/s are by its own time, those of all threads by the clock.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/tokenize/tokenizer.h"

namespace {

// Of all threads together, so that a machine that does other things too gives the same figures.
double cpu_seconds_of(const auto& f) {
  const std::clock_t begin = std::clock();
  f();
  return double(std::clock() - begin) / CLOCKS_PER_SEC;
}
double seconds_of(const auto& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) return fmt::print("tokenizer_bench TOKENIZER FILE [THREADS]\n"), 2;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 1;
  std::unique_ptr<weft::Tokenizer> tokenizer;
  const double open = seconds_of([&] { tokenizer = weft::read_tokenizer(argv[1]); });
  const weft::MappedFile file(argv[2]);
  const double mb = double(file.text().size()) / 1e6;
  double first = 0, best = 1e9, wall = 1e9;
  size_t ids = 0;
  for (int pass = 0; pass < 6; ++pass) {
    std::vector<int32_t> out;
    double cpu = 0;
    const double s = seconds_of([&] {
      cpu = cpu_seconds_of([&] { encode_parallel(*tokenizer, file.text(), weft::SpecialText::kText, threads, out); });
    });
    ids = out.size();
    if (pass == 0) first = cpu;
    best = std::min(best, cpu);
    wall = std::min(wall, s);
  }
  fmt::print("{:.1f} MB, {} ids; opened in {:.2f} s; MB/s a core: first pass {:.1f}, best {:.1f}; {} threads: {:.1f}\n",
             mb, ids, open, mb / first, mb / best, threads, mb / wall);
  return 0;
} catch (const weft::Error& e) {
  fmt::print(stderr, "tokenizer_bench: {}\n", e.what());
  return 1;
}
